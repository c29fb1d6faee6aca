# POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB as in the image of PostgreSQL.
set -euo pipefail
programs=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data/cluster
if [ ! -d "$data" ]; then
    "$programs/initdb" --username "$POSTGRES_USER" --pwfile <(echo "$POSTGRES_PASSWORD") \
        --encoding UTF8 --auth-host scram-sha-256 --auth-local trust "$data"
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    "$programs/pg_ctl" -D "$data" -w -o "-c listen_addresses= -k /tmp" start
    "$programs/createdb" -h /tmp -U "$POSTGRES_USER" "$POSTGRES_DB"
    "$programs/pg_ctl" -D "$data" -w stop
fi
exec "$programs/postgres" -D "$data" -c listen_addresses='*' -k /tmp
