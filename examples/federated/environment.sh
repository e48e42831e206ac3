# Settings of every party; source it before any Flower command.
# No usage reports and no update check: nothing leaves for anybody but the SuperLink.
export FLWR_TELEMETRY_ENABLED=0
export FLWR_DISABLE_UPDATE_CHECK=1
# Flower keeps received applications and connections here. Private, and one a party.
export FLWR_HOME="${FLWR_HOME:?name an absolute folder that only this account can read}"
umask 077
mkdir -p "$FLWR_HOME"
chmod 700 "$FLWR_HOME"
