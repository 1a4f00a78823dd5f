-- What remains of each lock key, in milliseconds. It is read before the clock: the server may be paused in between, and a key
-- must never expire earlier than before because of that. See readers.lua.
local pttl = {}
for i = 1, #KEYS, EACH do pttl[KEYS[i]] = redis.call('PTTL', KEYS[i]) end
