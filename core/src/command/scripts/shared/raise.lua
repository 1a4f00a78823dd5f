-- RAISE with at least one resource in shared mode. Returns the same as raise.lua.
--
-- KEYS: for each resource the lock key, the fence key, and the readers (see readers.lua).
-- ARGV: the token, the fence, the minimum ttl of the fence key in milliseconds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--- readers.lua
for i = 1, #KEYS, 3 do
  if not holds(KEYS[i], KEYS[i + 2], ARGV[1]) then return 0 end
end
-- The fence counter must not expire before the clock has passed its value.
local ahead = ARGV[2] - now
local memory = ahead > FENCE_WINDOW and ARGV[3] + math.ceil(ahead / 1000) or ARGV[3]
for i = 2, #KEYS, 3 do
  if tonumber(redis.call('GET', KEYS[i]) or '0') < tonumber(ARGV[2]) then
    redis.call('SET', KEYS[i], ARGV[2], 'PX', memory)
  end
end
return 1
