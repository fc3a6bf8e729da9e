// Node's HTTP server with Express: answers every request with what a server built on them reads from it.
//
//   SPEC=JSON node node_server.js PORT      JSON: {"queries": [names], "paths": [[prefix, before], ...]}
"use strict";

const contentType = require("content-type");
const express = require("express");
const Layer = require("express/lib/router/layer");

const spec = JSON.parse(process.env.SPEC);
const app = express();
app.disable("x-powered-by");

// A pattern of Express ignores case, unless a router is told otherwise.
const layers = spec.paths.map(([prefix, before]) =>
  new Layer(`${prefix}/${before}:version`, { end: false, sensitive: false, strict: false }, () => {}));

function flat(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function mediaType(text) {
  try {
    const parsed = contentType.parse(text);
    return [parsed.type, Object.entries(parsed.parameters)];
  } catch {
    return null;
  }
}

// Without a library: most code cuts at commas and semicolons.
function naive(text) {
  const [name, ...parameters] = text.split(";");
  const pairs = parameters.map((part) => {
    const at = part.indexOf("=");
    return [part.slice(0, at).trim().toLowerCase(), part.slice(at + 1).trim().replace(/^"(.*)"$/, "$1")];
  });
  return [name.trim().toLowerCase(), pairs];
}

function version(layer, path) {
  try {
    return layer.match(path) ? layer.params.version : null;
  } catch {
    return null; // 400: the segment cannot be decoded
  }
}

app.use((request, response) => {
  const queries = {};
  // Given a query without its question mark, URLSearchParams still drops one: `/??version=9` has a version.
  const search = new URLSearchParams(request.url.split("?").slice(1).join("?"));
  for (const name of spec.queries) {
    const found = search.getAll(name);
    if (found.length) found.push(found.join(", "));
    if (request.query[name] !== undefined) found.push(flat(request.query[name]));
    queries[name] = found;
  }
  const accept = (request.headers.accept || "").split(",").filter((item) => item.trim());
  const types = request.headers["content-type"];
  let path = request.path;
  try {
    path = decodeURIComponent(request.path);
  } catch {
    // stays as it is
  }
  const body = JSON.stringify({
    method: request.method,
    path,
    headers: request.headers,
    queries,
    accept: [...accept.map(mediaType).filter(Boolean), ...accept.map(naive)],
    content_type: types ? [mediaType(types), naive(types)].filter(Boolean) : [],
    paths: layers.map((layer) => [version(layer, request.path)].filter((each) => each !== null)),
  });
  // Without the conveniences of Express, which would answer 304 to `If-None-Match: *`.
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) });
  response.end(body);
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
server.keepAliveTimeout = 60000;
