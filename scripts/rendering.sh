#!/bin/sh
# See to headless rendering: Mesa's EGL libraries. Installs them if it may, else says how.
# Usage: rendering.sh PYTHON
set -u
python=$1

has_egl() { "$python" -c 'import sys; from planet_bayes.envs.gl import egl_works; sys.exit(not egl_works())' 2>/dev/null; }

case "$(uname -s)" in Linux) ;; *) exit 0 ;; esac
if has_egl; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing Mesa's EGL libraries for rendering without a screen …"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq && apt-get install -y -qq libegl1 libgl1-mesa-dri >/dev/null
fi
has_egl || echo "note: EGL does not work here, so there will be no pixels and no videos; sensors work. To have them:  sudo apt-get install -y libegl1 libgl1-mesa-dri"
exit 0
