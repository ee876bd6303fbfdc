#!/bin/sh
# One environment per peer, under .venvs/: their pins disagree with ours and with each other.
#   sh benchmarks/peers/make_envs.sh [pfl] [flower] [appfl]      (all of them without arguments)
# The constraints keep torch at our version: the comparison is of frameworks, not of torch releases.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3.11}

packages() {
    case $1 in
        pfl) echo "pfl==0.6.0 torch numpy" ;;
        flower) echo "flwr[simulation]==1.41.0 torch numpy" ;;
        appfl) echo "appfl==1.12.0 torch numpy" ;;
        *) echo "no such peer: $1 (pfl, flower, appfl)" >&2; exit 2 ;;
    esac
}

for peer in ${*:-pfl flower appfl}; do
    wanted=$(packages "$peer")
    "$python" -m venv "$here/.venvs/$peer"
    # shellcheck disable=SC2086  # words are what is wanted
    "$here/.venvs/$peer/bin/pip" install --quiet --constraint "$here/../../constraints.txt" $wanted
    echo "$peer is ready"
done
