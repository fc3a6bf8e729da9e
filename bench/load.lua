-- The load: what a fleet of python-ironicclient processes sends, three versions over six paths.
-- `repeated`: all requests are formatted once, so that wrk spends its core on sending.
-- `unique`: every request has a request id, a trace id and a token of its own, as real clients send them.
-- The result is printed as one line of JSON.
local versions = { "1.31", "1.58", "1.90" }
local node = "9f3c2b7e-5d51-4b0a-8c38-6f0e6a7f1d42"
local paths = {
    "/v1/nodes?fields=uuid,name,power_state,provision_state&limit=50",
    "/v1/nodes/" .. node,
    "/v1/nodes/" .. node .. "/states",
    "/v1/ports?node=" .. node,
    "/v1/nodes/detail",
    "/v1/drivers",
}
-- The usual length of a Fernet token of Keystone.
local token = "gAAAAABm" .. string.rep("Zk3xQw9_", 22)

local requests = {}
local unique = false
local at, number, run = 0, 0, 0

function init(args)
    unique = args[1] == "unique"
    run = os.time() % 0x7fffffff
    for _, path in ipairs(paths) do
        for _, version in ipairs(versions) do
            requests[#requests + 1] = wrk.format("GET", path, {
                ["Host"] = wrk.headers["Host"],
                ["User-Agent"] = "python-ironicclient keystoneauth1/5.8.0 python-requests/2.32.3 CPython/3.11.2",
                ["Accept"] = "application/json",
                ["Accept-Encoding"] = "gzip, deflate",
                ["X-Auth-Token"] = unique and token .. "@ID@" or token,
                ["X-OpenStack-Ironic-API-Version"] = version,
                ["X-Openstack-Request-Id"] = unique and "req-@ID@" or nil,
                ["Traceparent"] = unique and "00-@ID@@ID@-@ID@-01" or nil,
            })
        end
    end
end

function request()
    at = at % #requests + 1
    if not unique then
        return requests[at]
    end
    number = number + 1
    return (requests[at]:gsub("@ID@", string.format("%08x%08x", run, number)))
end

function done(summary, latency, _)
    local e = summary.errors
    io.write(string.format(
        'RESULT {"requests": %d, "microseconds": %d, "p50_us": %d, "p99_us": %d, "status_errors": %d, "socket_errors": %d}\n',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        e.status, e.connect + e.read + e.write + e.timeout))
end
