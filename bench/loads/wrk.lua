-- Sends the requests of the file in the first argument, in any order. They are divided by NUL bytes; `@ID@` in
-- them becomes twelve digits that no other request has. The result is printed as one line of JSON.
local requests = {} -- each in the parts between its ids
local number, run = 0, 0

function init(args)
    local file = assert(io.open(args[1], "rb"))
    for text in file:read("*a"):gmatch("[^%z]+") do
        local parts = {}
        for part in (text .. "@ID@"):gmatch("(.-)@ID@") do
            parts[#parts + 1] = part
        end
        requests[#requests + 1] = parts
    end
    file:close()
    run = os.time() % 0xffffff
    math.randomseed(run)
end

function request()
    local parts = requests[math.random(#requests)]
    if #parts == 1 then
        return parts[1]
    end
    number = number + 1
    return table.concat(parts, string.format("%06x%06x", run, number))
end

function done(summary, latency, _)
    local e = summary.errors
    io.write(string.format(
        'RESULT {"requests": %d, "microseconds": %d, "p50_us": %d, "p99_us": %d, "status_errors": %d, "socket_errors": %d}\n',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        e.status, e.connect + e.read + e.write + e.timeout))
end
