-- GIVE BACK: undoes TRANSFER. Sets the token of the giver again in every lock key that the token
-- holds, for the time that is left to adopt the lease. If none is left, deletes the key. Returns 1
-- if the token held all of them; else 0.
--
-- KEYS: the lock key of each resource; for each permit of a semaphore also the index (see permits.lua).
-- ARGV: the token, the token of the giver, the time by the nodes' clocks at which the time to adopt
-- the lease ends (microseconds), and how long it was in all (milliseconds). For permits also the beginning of all lock
-- keys.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--- free_from.lua
local left, done = math.min(math.ceil((ARGV[3] - now) / 1000), tonumber(ARGV[4])), 1
for i = 1, #KEYS, EACH do
  local is_held = redis.pcall('GET', KEYS[i]) == ARGV[1]
  if not is_held then
    done = 0
  elseif left > 0 then
    redis.call('SET', KEYS[i], ARGV[2], 'PX', left)
  else
    redis.call('DEL', KEYS[i])
  end
  if is_held and ARGV[5] then
    local score = left > 0 and free_from(left) or '0'
    redis.pcall('ZADD', KEYS[i + 1], 'XX', score, string.sub(KEYS[i], #ARGV[5] + 1))
  end
end
return done
