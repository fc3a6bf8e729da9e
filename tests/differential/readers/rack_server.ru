# Rack on Puma: answers every request with what an application reads from it.
#
#   SPEC=JSON puma --bind tcp://127.0.0.1:PORT rack_server.ru      JSON as for node_server.js
require "json"
require "rack"
require "rack/media_type"

SPEC = JSON.parse(ENV.fetch("SPEC"))
PATHS = SPEC["paths"].map do |prefix, before|
  start = Regexp.escape("#{prefix}/#{before}")
  ["", "i"].map { |flags| Regexp.new("\\A#{start}([^/]+)(?:/|\\z)", flags.empty? ? 0 : Regexp::IGNORECASE) }
end

# A mapped prefix, as in `map "/api"`: the rest is PATH_INFO.
MAPPED = SPEC["paths"].map do |prefix, _|
  prefix.empty? ? nil : Rack::URLMap.new(prefix => ->(env) { [200, {}, [env["PATH_INFO"]]] })
end

def text(value)
  value.dup.force_encoding("UTF-8").scrub("?")
end

def flat(value)
  value.is_a?(String) ? text(value) : value.to_s.scrub("?")
end

def media_type(value)
  [Rack::MediaType.type(value).to_s, Rack::MediaType.params(value).map { |name, found| [text(name), text(found)] }]
end

def versions(env, path, index)
  found = PATHS[index].filter_map { |pattern| pattern.match(path)&.captures&.first }
  if MAPPED[index]
    status, _, body = MAPPED[index].call(env.dup)
    segment = body.first.to_s.split("/").reject(&:empty?).first if status == 200
    found << text(Rack::Utils.unescape_path(segment)) if segment
  end
  found
end

def read(env)
  parameters = Rack::Utils.parse_nested_query(env["QUERY_STRING"])
  plain = Rack::Utils.parse_query(env["QUERY_STRING"])
  queries = SPEC["queries"].to_h do |name|
    [name, [parameters[name], plain[name]].compact.map { |value| flat(value) }]
  end
  path = text(Rack::Utils.unescape_path(env["PATH_INFO"]))
  headers = env.select { |key, _| key.start_with?("HTTP_") || key == "CONTENT_TYPE" }
  accept = env["HTTP_ACCEPT"].to_s.split(",").reject { |item| item.strip.empty? }
  {
    method: env["REQUEST_METHOD"],
    path: path,
    headers: headers.transform_values { |value| text(value) },
    queries: queries,
    accept: accept.map { |item| media_type(item.strip) },
    content_type: env["CONTENT_TYPE"].to_s.empty? ? [] : [media_type(env["CONTENT_TYPE"])],
    paths: SPEC["paths"].each_index.map { |index| versions(env, path, index) },
  }
end

run(lambda do |env|
  begin
    body = JSON.generate(read(env))
    [200, { "Content-Type" => "application/json", "Content-Length" => body.bytesize.to_s }, [body]]
  rescue Rack::Utils::ParameterTypeError, Rack::Utils::InvalidParameterError, Rack::QueryParser::ParamsTooDeepError, ArgumentError => error
    [400, { "Content-Type" => "text/plain", "Content-Length" => error.message.bytesize.to_s }, [error.message]]
  end
end)
