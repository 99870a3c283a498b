"""Workflow definitions: their shape (OpenWOP v2, workflow definition), checked, with every literal as exact bytes.

Knows the node types that it is given, and nothing of how a run proceeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from openwop_mcp import jsontext
from openwop_mcp.calls import MAX_DEPTH
from openwop_mcp.nodes.registry import NodeType
from openwop_mcp.runs import values
from openwop_mcp.runs.shapes import (
    PORT_SHAPES,
    ConditionShape,
    ConnectionShape,
    DefinitionShape,
    EdgeShape,
    ExpressionShape,
    NodeShape,
    StaticShape,
    TriggerRule,
    VariableRefShape,
    VariableShape,
    VariableType,
    faults_of,
    port_shape,
)

__all__ = (
    "ARGUMENTS",
    "Condition",
    "Connection",
    "Definition",
    "DefinitionError",
    "Edge",
    "Node",
    "Operand",
    "Port",
    "SourceOutput",
    "Static",
    "TriggerRule",
    "Variable",
    "VariableRef",
    "argument",
    "parse",
)

MAX_DEFINITION = 2_000_000
"""Bytes. Each worker that takes a run up reads the whole definition in one go, which must not take it two seconds: the
SDK would give the task up, and to the next worker, for ever. This much takes 0.4 s at worst."""

MAX_ALLOWED = 8_192
"""Bytes of the list of allowed tools, which goes with each call: some 200 names, or globs for any number."""

MAX_PATTERN = 256
"""Characters of a regular expression in a condition: room for a format, none for a program."""

ARGUMENTS = "arguments"
"""Input that may be composed: a port of the name ``arguments.city`` gives its member ``city``."""

MASKING = "mask"
"""How sensitive values are hidden (OpenWOP, privacy classification): a text stands in their place."""

CONDITION_TYPES = ("equals", "notEquals", "contains", "regex", "truthy", "falsy")

NO_EXPRESSIONS = "expressions are not supported: write a static value, a variable or a connection"
NO_EXPRESSION_CONDITIONS = "expression conditions are not supported: write "


class DefinitionError(ValueError):
    """A definition that cannot be run.

    Attributes:
        faults: One line for each fault: source, path and what to write.
        unknown_types: The node types that it needs and that are not there. Each is one of the faults; where they are
            all of them, the definition may be one for a host that has more.
    """

    def __init__(self, faults: Sequence[str], unknown_types: Sequence[str] = ()) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)
        self.unknown_types = tuple(unknown_types)


@dataclass(frozen=True, slots=True)
class Static:
    """A literal, as it was spelled."""

    value: bytes


@dataclass(frozen=True, slots=True)
class VariableRef:
    """The value of a variable of the run."""

    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Connection:
    """A value out of another node's outputs; ``path`` is the output's name, or the names of a JSON Pointer."""

    node_id: str
    path: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class SourceOutput:
    """A value out of the outputs of an edge's source; an empty path is all of them."""

    path: tuple[str, ...]


Port = Static | VariableRef | Connection
Operand = Port | SourceOutput


@dataclass(frozen=True, slots=True)
class Condition:
    """What has to hold for an edge to count as a success."""

    type: str
    left: Operand
    right: Operand | None


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its type, its config as written, where its inputs and the members of its arguments come from.

    ``sensitivity`` is what its author says of its outputs by name: whether a log masks them.
    """

    id: str
    name: str
    type: NodeType
    config: bytes
    inputs: tuple[tuple[str, Port], ...]
    sensitivity: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge. What it says of its source decides, by the trigger rule, whether its target runs."""

    id: str
    source: str
    target: str
    trigger_rule: TriggerRule
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Variable:
    """One declared variable; ``default`` as it was spelled. A log masks the value of one that is ``sensitive``."""

    name: str
    type: VariableType
    required: bool
    default: bytes | None
    sensitive: bool = False

    def admits(self, value: bytes) -> bool:
        """Tell whether a value is of the variable's type."""
        kind = jsontext.kind(value)
        return self.type == ("boolean" if kind in ("true", "false") else kind)


@dataclass(frozen=True, slots=True)
class Definition:
    """A workflow definition that can be run.

    Attributes:
        raw: The text it was parsed from.
        id: The workflow's id.
        name: The workflow's name.
        version: The workflow's version.
        nodes: Its nodes, as written.
        edges: Its edges, as written.
        variables: Its variables, as written.
        timeout_ms: Longest run in milliseconds; None for no limit.
        max_retries: Most further attempts of a node; None leaves it to the servers' settings.
        allowed_tools: JSON text of the globs of tools that a run may call, each over ``<serverId>.<toolName>``; None
            for all.
    """

    raw: bytes
    id: str
    name: str
    version: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    variables: tuple[Variable, ...]
    timeout_ms: int | None
    max_retries: int | None
    allowed_tools: bytes | None = None

    def misfits(self, given: Mapping[str, bytes]) -> list[tuple[str, str]]:
        """What keeps a run from being made with these inputs: for each such input its name and what to write.

        Inputs that no variable declares are fine.
        """
        faults: list[tuple[str, str]] = []
        for variable in self.variables:
            value = given.get(variable.name, variable.default)
            if value is None:
                if variable.required:
                    faults.append((variable.name, "write it: the workflow requires it"))
            elif not variable.admits(value):
                faults.append((variable.name, f"write a JSON value of type {variable.type}"))
        return faults


def argument(name: str) -> str | None:
    """The member of the arguments that an input of this name gives; None for an input as a whole."""
    head, dot, member = name.partition(".")
    return member if head == ARGUMENTS and dot else None


def parse(data: bytes, *, source: str, node_types: Mapping[str, NodeType]) -> Definition:
    """Read and check a workflow definition.

    Args:
        data: JSON text of the definition.
        source: Where it comes from, for the faults: a file's name.
        node_types: The node types that may stand in it.

    Raises:
        DefinitionError: listing every fault.
    """
    if len(data) > MAX_DEFINITION:
        raise DefinitionError(
            [f"{source}: {len(data)} bytes are over the {MAX_DEFINITION} that can be run: give what is large as inputs"]
        )
    try:
        jsontext.check_depth(data, MAX_DEPTH)
        decoded = jsontext.decode(data)
    except jsontext.JsonTextError as error:
        raise DefinitionError([f"{source}: {error}"]) from None
    try:
        shape = DefinitionShape.model_validate(decoded)
    except ValidationError as error:
        raise DefinitionError([f"{source}: {fault}" for fault in faults_of(error, DefinitionShape, ())]) from None
    reader = _Reader(shape, dict(jsontext.members(data)), node_types)
    definition = reader.read(data)
    if reader.faults:
        raise DefinitionError([f"{source}: {fault}" for fault in reader.faults], reader.unknown_types)
    return definition


class _Reader:
    """Turns a definition of the right shape into one that can be run, and collects what is wrong with it."""

    def __init__(
        self, shape: DefinitionShape, members: Mapping[str, bytes], node_types: Mapping[str, NodeType]
    ) -> None:
        self._shape = shape
        self._members = members
        self._node_types = node_types
        self._variables = {variable.name: variable for variable in shape.variables}
        self._nodes = {node.id: node for node in shape.nodes}
        self._types = {node.id: node_types.get(node.type_id) for node in shape.nodes}
        self._above: dict[str, int] = {}
        self._bits = {node_id: 1 << index for index, node_id in enumerate(self._types)}
        self.faults: list[str] = []
        self.unknown_types: list[str] = []

    def read(self, raw: bytes) -> Definition:
        shape = self._shape
        self._unique("nodes", (node.id for node in shape.nodes))
        self._unique("edges", (edge.id for edge in shape.edges))
        self._unique("variables", (variable.name for variable in shape.variables), "name")
        self._walk_edges()
        variables = [
            self._variable(f"variables[{index}]", variable, text)
            for index, (variable, text) in enumerate(self._texts("variables", shape.variables))
        ]
        nodes = [
            self._node(f"nodes[{index}]", node, text)
            for index, (node, text) in enumerate(self._texts("nodes", shape.nodes))
        ]
        edges = [
            self._edge(f"edges[{index}]", edge, text)
            for index, (edge, text) in enumerate(self._texts("edges", shape.edges))
        ]
        self._check_masking()
        return Definition(
            raw=raw,
            id=shape.id,
            name=shape.name,
            version=shape.version,
            nodes=tuple(node for node in nodes if node is not None),
            edges=tuple(edges),
            variables=tuple(variables),
            timeout_ms=shape.settings.timeout or None,
            max_retries=shape.settings.max_retries,
            allowed_tools=self._allowed(),
        )

    def _texts(self, name: str, shapes: Sequence[Any]) -> Iterable[tuple[Any, dict[str, bytes]]]:
        return zip(
            shapes, (dict(jsontext.members(text)) for text in jsontext.elements(self._members[name])), strict=True
        )

    def _fault(self, path: str, what: str) -> None:
        self.faults.append(f"{path}: {what}")

    def _unique(self, where: str, names: Iterable[str], member: str = "id") -> None:
        first: dict[str, int] = {}
        for index, name in enumerate(names):
            if first.setdefault(name, index) != index:
                self._fault(f"{where}[{index}].{member}", f"'{name}' is taken by {where}[{first[name]}]: write another")

    # --- the graph ---

    def _walk_edges(self) -> None:
        """Find for each node those above it, and refuse cycles: what is on one is never reached from the top."""
        incoming: dict[str, list[str]] = {node_id: [] for node_id in self._types}
        outgoing: dict[str, list[str]] = {node_id: [] for node_id in self._types}
        for index, edge in enumerate(self._shape.edges):
            ends = ("sourceNodeId", edge.source_node_id), ("targetNodeId", edge.target_node_id)
            unknown = [(member, node_id) for member, node_id in ends if node_id not in self._types]
            for member, node_id in unknown:
                self._fault(f"edges[{index}].{member}", f"there is no node '{node_id}': write the id of one")
            if not unknown:
                incoming[edge.target_node_id].append(edge.source_node_id)
                outgoing[edge.source_node_id].append(edge.target_node_id)
        left = {node_id: len(sources) for node_id, sources in incoming.items()}
        order = [node_id for node_id, count in left.items() if count == 0]
        for node_id in order:
            self._above[node_id] = 0
            for source in incoming[node_id]:
                self._above[node_id] |= self._above[source] | self._bits[source]
            for target in outgoing[node_id]:
                left[target] -= 1
                if left[target] == 0:
                    order.append(target)
        if len(order) < len(self._types):
            # Of what is left, every node has a source that is left: going upwards comes round.
            node_id = next(node_id for node_id in self._types if left[node_id] > 0)
            path: dict[str, None] = {}
            while node_id not in path:
                path[node_id] = None
                node_id = next(source for source in incoming[node_id] if left[source] > 0)
            cycle = [*list(path)[list(path).index(node_id) :], node_id][::-1]
            self._fault("edges", f"{' -> '.join(cycle)} is a cycle: remove one of its edges")

    def _is_above(self, node_id: str, other: str) -> bool:
        # Where a cycle hides what is above, the cycle is the fault to mend.
        return bool(self._above.get(other, -1) & self._bits[node_id])

    # --- variables, nodes, edges ---

    def _variable(self, path: str, shape: VariableShape, text: Mapping[str, bytes]) -> Variable:
        variable = Variable(shape.name, shape.type, shape.required, text.get("defaultValue"), shape.sensitive)
        if variable.default is not None and not variable.admits(variable.default):
            self._fault(f"{path}.defaultValue", f"write a JSON value of type {variable.type}")
        return variable

    def _node(self, path: str, shape: NodeShape, text: Mapping[str, bytes]) -> Node | None:
        node_type = self._node_types.get(shape.type_id)
        if node_type is None:
            known = ", ".join(self._node_types)
            self._fault(f"{path}.typeId", f"there is no node type '{shape.type_id}': write one of {known}")
            self.unknown_types.append(shape.type_id)
            return None
        self._fits(node_type.config, shape.config, f"{path}.config")
        written = jsontext.members(text["inputs"])
        texts = dict(written)
        for name in texts:
            if sum(name == other for other, _ in written) > 1:
                self._fault(f"{path}.inputs.{name}", "it is written twice: remove one")
        ports = [
            (name, self._port(f"{path}.inputs.{name}", port, texts[name], below=shape.id))
            for name, port in shape.inputs.items()
        ]
        inputs = tuple((name, port) for name, port in ports if port is not None)
        self._check_inputs(path, node_type, shape, inputs)
        for name in shape.output_sensitivity:
            self._check_output(shape.id, name, f"{path}.outputSensitivity.{name}")
        return Node(shape.id, shape.name, node_type, text["config"], inputs, tuple(shape.output_sensitivity.items()))

    def _check_inputs(
        self, path: str, node_type: NodeType, shape: NodeShape, inputs: Sequence[tuple[str, Port]]
    ) -> None:
        fields = {field.alias or name: field for name, field in node_type.inputs.model_fields.items()}
        for name in shape.inputs:
            member = argument(name)
            if member == "":
                self._fault(f"{path}.inputs.{name}", "write the name of a member after the dot")
            elif member is not None and ARGUMENTS in shape.inputs:
                self._fault(f"{path}.inputs.{name}", f"'{ARGUMENTS}' is given as a whole: remove one of the two")
            elif (name if member is None else ARGUMENTS) not in fields:
                known = ", ".join(fields) or "none"
                self._fault(f"{path}.inputs.{name}", f"{node_type.type_id} has no such input (it has: {known})")
        for name, field in fields.items():
            if field.is_required() and name not in shape.inputs and name not in node_type.ambient:
                self._fault(f"{path}.inputs.{name}", f"write it: {node_type.type_id} needs it")
        for name in node_type.either:
            if name not in shape.inputs and name not in shape.config:
                self._fault(f"{path}.config.{name}", f"write it here or as an input: {node_type.type_id} needs it")
        literals = {name: jsontext.decode(port.value) for name, port in inputs if isinstance(port, Static)}
        self._fits(node_type.inputs, literals, f"{path}.inputs", partial=True)

    def _allowed(self) -> bytes | None:
        if self._shape.allowed_tools is None:
            return None
        text = jsontext.encode(self._shape.allowed_tools)
        if len(text) > MAX_ALLOWED:
            self._fault("allowedTools", f"{len(text)} bytes are over {MAX_ALLOWED}: write globs, such as weather.get_*")
        return text

    def _check_masking(self) -> None:
        """Refuse another way to hide what is sensitive than the one there is."""
        sensitive = any(variable.sensitive for variable in self._shape.variables) or any(
            masked for node in self._shape.nodes for masked in node.output_sensitivity.values()
        )
        told = self._shape.metadata.get("complianceConfig")
        if sensitive and isinstance(told, dict) and told.get("maskingMode", MASKING) != MASKING:
            self._fault("metadata.complianceConfig.maskingMode", f"not supported here: write {MASKING} or remove it")

    def _fits(self, model: type[BaseModel], value: Any, path: str, *, partial: bool = False) -> None:
        try:
            model.model_validate(value)
        except ValidationError as error:
            # With partial, other inputs come later, and unknown ones have their fault already.
            later = ("missing", "extra_forbidden") if partial else ()
            self.faults.extend(faults_of(error, model, (path,), leave_out=later))

    def _edge(self, path: str, shape: EdgeShape, text: Mapping[str, bytes]) -> Edge:
        target = self._nodes.get(shape.target_node_id)
        if target is not None and shape.target_input is not None and shape.target_input not in target.inputs:
            self._fault(
                f"{path}.targetInput",
                f"an edge carries no value: write a connection into the inputs of node '{target.id}' and remove this",
            )
        condition = None
        if shape.condition is not None and shape.source_node_id in self._types:
            condition = self._condition(path, shape, shape.condition, dict(jsontext.members(text["condition"])))
        return Edge(shape.id, shape.source_node_id, shape.target_node_id, shape.trigger_rule, condition)

    def _condition(
        self, path: str, edge: EdgeShape, shape: ConditionShape, texts: Mapping[str, bytes]
    ) -> Condition | None:
        where = f"{path}.condition"
        if shape.type not in CONDITION_TYPES:
            reason = NO_EXPRESSION_CONDITIONS if shape.type == "expression" else "write "
            self._fault(f"{where}.type", f"{reason}{', '.join(CONDITION_TYPES[:-1])} or {CONDITION_TYPES[-1]}")
            return None
        base = self._path(edge.source_node_id, edge.source_output, f"{path}.sourceOutput")
        left: Operand | None
        if "left" not in texts:
            left = SourceOutput(base)
        elif isinstance(shape.left, str):
            left = self._left_path(f"{where}.left", edge.source_node_id, base, shape.left)
        else:
            left = self._operand(f"{where}.left", shape.left, texts["left"], edge.source_node_id)
        right: Operand | None = None
        if shape.type not in ("truthy", "falsy"):
            if "right" not in texts:
                self._fault(f"{where}.right", f"write what {shape.type} compares with")
                return None
            right = self._operand(f"{where}.right", shape.right, texts["right"], edge.source_node_id)
            if shape.type == "regex":
                self._check_pattern(f"{where}.right", right)
        return None if left is None else Condition(shape.type, left, right)

    def _left_path(self, where: str, source: str, base: tuple[str, ...], key: str) -> SourceOutput:
        """Read the path of a left operand: a JSON Pointer, or names with dots between them."""
        try:
            steps = values.tokens(key) if key.startswith("/") else tuple(key.split("."))
        except ValueError as error:
            self._fault(where, str(error))
            return SourceOutput(base)
        if not base:
            self._check_output(source, steps[0], where)
        return SourceOutput((*base, *steps))

    def _check_pattern(self, path: str, operand: Operand | None) -> None:
        pattern = jsontext.decode(operand.value) if isinstance(operand, Static) else None
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            self._fault(path, f"write the regular expression as a string of at most {MAX_PATTERN} characters")
            return
        try:
            values.compiled(pattern)
        except values.PatternError as error:
            self._fault(
                path, f"write a regular expression of RE2, which has no backreferences and no lookaround ({error})"
            )

    # --- ports and operands ---

    def _operand(self, path: str, value: Any, text: bytes, source: str) -> Port | None:
        if not (isinstance(value, dict) and value.get("type") in PORT_SHAPES):
            return Static(text)
        try:
            shape = port_shape.validate_python(value)
        except ValidationError as error:
            self.faults.extend(faults_of(error, PORT_SHAPES[value["type"]], (path,), tagged=True))
            return None
        return self._port(path, shape, text, below=source, itself=True)

    def _port(
        self,
        path: str,
        shape: StaticShape | ExpressionShape | ConnectionShape | VariableRefShape,
        text: bytes,
        *,
        below: str,
        itself: bool = False,
    ) -> Port | None:
        """Read a port of node ``below``, or with ``itself`` one of an edge's condition, which sees its source too."""
        match shape:
            case StaticShape():
                value = jsontext.member(text, "value")
                return None if value is None else Static(value)
            case ExpressionShape():
                self._fault(f"{path}.type", NO_EXPRESSIONS)
            case VariableRefShape():
                if shape.variable_name in self._variables:
                    return VariableRef(shape.variable_name, shape.optional)
                self._fault(f"{path}.variableName", f"there is no variable '{shape.variable_name}': declare it")
            case ConnectionShape():
                return self._connection(path, shape, below, itself=itself)
        return None

    def _connection(self, path: str, shape: ConnectionShape, below: str, *, itself: bool) -> Connection | None:
        if shape.node_id not in self._types:
            self._fault(f"{path}.nodeId", f"there is no node '{shape.node_id}': write the id of one")
            return None
        if not (itself and shape.node_id == below) and not self._is_above(shape.node_id, below):
            self._fault(
                f"{path}.nodeId", f"no edges lead from '{shape.node_id}' to '{below}': add one, so that it ends first"
            )
        steps = self._path(shape.node_id, shape.output_key, f"{path}.outputKey")
        return Connection(shape.node_id, steps, shape.optional)

    def _path(self, node_id: str, key: str | None, where: str) -> tuple[str, ...]:
        if key is None:
            return ()
        try:
            steps = values.tokens(key)
        except ValueError as error:
            self._fault(where, str(error))
            return (key,)
        self._check_output(node_id, steps[0], where)
        return steps

    def _check_output(self, node_id: str, name: str, where: str) -> None:
        node_type = self._types[node_id]
        if node_type is None:
            return
        known = node_type.output_names
        if name not in known:
            self._fault(where, f"{node_type.type_id} has no output '{name}' (it has: {', '.join(known) or 'none'})")
