#!/bin/sh
# Makes what compose.yaml needs for a rehearsal of three sites on one machine: made-up records, trial keys and certificates,
# and a registration. In earnest every party makes its own keys, and private ones never travel: see README.md.
#
#   sh deploy/prepare.sh FOLDER       FOLDER must be new. As root, so that files can be given to the users of the image.
#
# FEDSRC is the command, where it is not on the PATH: FEDSRC="docker run --rm -u 0 -v $PWD:$PWD -w $PWD fedsrc", for example,
# with FOLDER inside the working folder.
set -eu

fedsrc=${FEDSRC:-fedsrc}
tables=$(cd "$(dirname "$0")/../examples" && pwd)/make_tables.py
sites="ashford birch cedar"
test $# -eq 1 || { echo "usage: $0 FOLDER" >&2; exit 2; }

umask 077
# shellcheck disable=SC2086 # the command may be several words
$fedsrc keys --trial "$1" --sites ashford,birch,cedar --host server
cd "$1"
mkdir tables
(cd tables && python3 "$tables")
for site in $sites; do mv "tables/$site/records.csv" "$site/"; done
mv tables/coordinator/dev.csv server/
rm -r tables

named() { for site in $sites; do printf '%s=%s,' "$site" "$(cat "$site/$1")"; done | sed 's/,$//'; }
# shellcheck disable=SC2086
$fedsrc register "$PWD/server/dev.csv" -o "$PWD/registration.toml" --target 0.2 --epsilon 4 --batch 150 --rounds 3 \
    --policy final --sites ashford,birch,cedar --capacities ashford=600,birch=600,cedar=600 \
    --weights ashford=0.34,birch=0.33,cedar=0.33 --claim "score=rehearsal" \
    --server-key "$(cat server/server.pub)" --site-keys "$(named site.pub)"

cat > compose.env <<END
FEDSRC_FILES=$PWD
FEDSRC_TRUST=$(cat server/server.pub)
FEDSRC_SCORE=rehearsal
END

# What is public may be read by all, the rest by the one who needs it: 10001 runs server and site, 10002 the node.
# shellcheck disable=SC2086
chmod 0755 . server $sites
chmod 0644 registration.toml ca.pem compose.env server/*.pem server/*.pub ./*/node.pub
chmod 0400 server/*.key ./*/site.key ./*/node.key ./*/records.csv
if [ "$(id -u)" -eq 0 ]; then
    chown 10001:10001 server/*.key ./*/site.key ./*/records.csv
    chown 10002:10002 ./*/node.key
else
    echo "Not root: give */node.key to user 10002, and keys and records.csv of server and sites to user 10001." >&2
fi
echo "Ready. Next: docker compose -f deploy/compose.yaml --env-file $PWD/compose.env, as README.md says."
