#!/usr/bin/env bash
# Makes names/COMMAND.txt: the names of the options in Marian's help. Needs pip install pymarian.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p names
for command in train decode score vocab convert; do
  pymarian "$command" --help 2>&1 | sed -nE 's/^  (-.,)?--([a-z0-9-]+).*/\2/p' | grep -vxE 'help|version' >"names/$command.txt"
done
