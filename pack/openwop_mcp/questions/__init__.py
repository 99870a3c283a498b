"""What a run asks of people, and what their answers mean: servers' questions, approvals of calls, an author's gates.

Pure: knows no Temporal, no run and no network. Whatever reads an answer for a workflow is deterministic; checks that
take processor time stand apart, for the moment at which an answer is given.
"""
