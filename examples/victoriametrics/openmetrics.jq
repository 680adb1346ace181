# Turns the lines of VictoriaMetrics's /api/v1/export into OpenMetrics for `promtool tsdb create-blocks-from openmetrics`.
# The end of the file is missing: (jq -r -f openmetrics.jq export.jsonl; echo '# EOF') > export.om
(.metric | del(.__name__) | to_entries | map("\(.key)=\(.value | tojson)") | join(",")) as $labels
  | range(.values | length) as $i
  | "\(.metric.__name__){\($labels)} \(.values[$i] // "NaN" | tostring | sub("inity"; "")) \(.timestamps[$i] / 1000)"
