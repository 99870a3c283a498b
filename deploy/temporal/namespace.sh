#!/bin/sh
# Creates the namespace, and the search attributes of your own workflows if there are any; what is there already stays as
# it is. Takes TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, and optionally RETENTION and SEARCH_ATTRIBUTES ("Team=Keyword
# Cost=Double"). Needs the program `temporal`.
set -eu
export TEMPORAL_ADDRESS TEMPORAL_NAMESPACE

# Effects are remembered for as long as closed workflows are kept.
retention=${RETENTION:-336h}

insist() {
  tries=60
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
      "$@"
      return 1
    fi
    sleep 2
  done
}

insist temporal operator cluster health
if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$retention"
fi
# The parts of Temporal hear of a namespace one after the other.
insist temporal workflow list --limit 1

known=$(temporal operator search-attribute list)
for attribute in ${SEARCH_ATTRIBUTES:-}; do
  name=${attribute%%=*}
  if ! printf '%s\n' "$known" | grep -qw -- "$name"; then
    temporal operator search-attribute create --name "$name" --type "${attribute#*=}"
  fi
done
