-- The remaining ttl of each lock key, in milliseconds. Must be read before the clock: the server may be
-- paused between the two reads, and such a pause must not make a key expire earlier than before. See
-- readers.lua.
local pttl = {}
for i = 1, #KEYS, EACH do pttl[KEYS[i]] = redis.call('PTTL', KEYS[i]) end
