#!/bin/sh
# See to the browser that pages are tested in: Chromium. Installs it if it may, else says how.
set -u

has_chromium() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null; }

case "$(uname -s)" in Linux) ;; *) exit 0 ;; esac
if has_chromium; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing Chromium for the tests of pages …"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq && apt-get install -y -qq chromium >/dev/null
fi
has_chromium || echo "note: there is no Chromium here, so the tests of pages in a browser are skipped. To have them:  sudo apt-get install -y chromium"
exit 0
