-- What remains of each key, in milliseconds. It is read before the clock: the server may be paused in between, and a key
-- must never expire earlier than before because of that. See readers.lua.
local pttl = {}
for _, key in ipairs(KEYS) do pttl[key] = pttl[key] or redis.call('PTTL', key) end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
