# KAFKA_NODE_ID=1 becomes node.id=1, as in Apache Kafka's image.
set -euo pipefail
properties=/tmp/server.properties
env | grep '^KAFKA_' | while IFS='=' read -r name value; do
    name=${name#KAFKA_}
    name=${name//_/.}
    echo "${name,,}=$value"
done >"$properties"
run() { java -Xmx512m -cp '/opt/kafka/libs/*' "$@"; }
run kafka.tools.StorageTool format --ignore-formatted -t MDEyMzQ1Njc4OWFiY2RlZg -c "$properties"
exec java -Xmx512m -cp '/opt/kafka/libs/*' kafka.Kafka "$properties"
