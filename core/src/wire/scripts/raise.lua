-- RAISE: raises the stored fence of each resource to at least the given fence, if the token holds all
-- resources. Returns 1 if the token holds all resources; else 0.
--
-- KEYS: for each resource the lock key, the fence key, and the readers (see readers.lua).
-- ARGV: the token, the fence, the minimum ttl of the fence key in milliseconds.

--- pttl.lua
--- clock.lua
--- readers.lua
local last = {}
for i = 1, #KEYS, EACH do
  if not holds(KEYS[i], KEYS[i + 2], ARGV[1]) then return 0 end
  last[i + 1] = tonumber(redis.call('GET', KEYS[i + 1]) or '0')
  if not last[i + 1] then
    return redis.error_reply('ERR the fence key ' .. KEYS[i + 1] .. ' holds a foreign value')
  end
end
-- The fence counter must not expire before the clock has passed the counter's value.
local ahead = ARGV[2] - now
local memory = ahead > FENCE_WINDOW and ARGV[3] + math.ceil(ahead / 1000) or ARGV[3]
for key, fence in pairs(last) do
  if fence < tonumber(ARGV[2]) then redis.call('SET', KEYS[key], ARGV[2], 'PX', memory) end
end
return 1
