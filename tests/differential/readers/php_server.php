<?php
// The router of PHP's own server: answers every request with what a script reads from it.
//
//   SPEC=JSON php -S 127.0.0.1:PORT php_server.php      JSON as for node_server.js
declare(strict_types=1);

$spec = json_decode(getenv('SPEC'), true);

function flat(mixed $value): string
{
    return is_string($value) ? $value : json_encode($value, JSON_INVALID_UTF8_SUBSTITUTE);
}

// PHP has no reader of media types: scripts cut at commas and semicolons.
function media_type(string $text): array
{
    $parts = explode(';', $text);
    $pairs = [];
    foreach (array_slice($parts, 1) as $part) {
        [$name, $value] = array_pad(explode('=', $part, 2), 2, '');
        $pairs[] = [strtolower(trim($name)), trim(trim($value), '"')];
    }
    return [strtolower(trim($parts[0])), $pairs];
}

$queries = [];
foreach ($spec['queries'] as $name) {
    $queries[$name] = isset($_GET[$name]) ? [flat($_GET[$name])] : [];
}
$headers = [];
foreach ($_SERVER as $key => $value) {
    if (str_starts_with($key, 'HTTP_') || $key === 'CONTENT_TYPE') {
        $headers[$key] = $value;
    }
}
$accept = array_filter(explode(',', $_SERVER['HTTP_ACCEPT'] ?? ''), fn ($item) => trim($item) !== '');
$path = urldecode(explode('?', $_SERVER['REQUEST_URI'], 2)[0]);
$paths = [];
foreach ($spec['paths'] as [$prefix, $before]) {
    $found = [];
    foreach (['', 'i', 'iu'] as $flags) {
        $start = preg_quote("$prefix/", '#') . $before;
        if (@preg_match("#^$start([^/]+)(?:/|\$)#D$flags", $path, $match)) {
            $found[] = $match[1];
        }
    }
    $paths[] = $found;
}
header('Content-Type: application/json');
echo json_encode(
    [
        'method' => $_SERVER['REQUEST_METHOD'],
        'path' => $path,
        'headers' => (object) $headers,
        'queries' => (object) $queries,
        'accept' => array_map('media_type', array_values($accept)),
        'content_type' => isset($_SERVER['CONTENT_TYPE']) ? [media_type($_SERVER['CONTENT_TYPE'])] : [],
        'paths' => $paths,
    ],
    JSON_INVALID_UTF8_SUBSTITUTE,
);
