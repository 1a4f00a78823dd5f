-- TRANSFER: locks all resources for a token, or none, where the token of the giver holds all of
-- them. Returns one of:
--   {1, fence, time}              granted
--   {2, 0}                        the token already holds a resource
--   {0, expires_in, time, token}  refused
--
-- `time` is the node's clock in microseconds. If a lock key is missing, `expires_in` is -2. If not,
-- it is that of a key with another token, in milliseconds (-1: never), and `token` is the other
-- token, cut off after the longest one; '' if the value is not a string.
--
-- KEYS: for each resource the lock key, the fence key and the queue; for each permit of a semaphore also the index (see
-- permits.lua).
-- ARGV: the token, the ttl of the lock, the proposed fence, the minimum ttl of the fence key, and
-- the token of the giver. All ttls are in milliseconds. For permits also the beginning of all lock keys.

--- fence.lua
--- free_from.lua
local giver, other, expires_in, is_missing, is_own = ARGV[5], nil, 0, false, false
for i = 1, #KEYS, EACH do
  local value = redis.pcall('GET', KEYS[i])
  is_own = is_own or value == token
  if not value then
    is_missing = true
  elseif value ~= giver then
    other = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    expires_in = redis.call('PTTL', KEYS[i])
  end
end
if is_own then return {2, 0} end
if is_missing then return {0, -2, now, ''} end
if other then return {0, expires_in, now, other} end
for i = 1, #KEYS, EACH do
  redis.call('SET', KEYS[i], token, 'PX', ttl)
  redis.call('SET', KEYS[i + 1], string.format('%.0f', fence), 'PX', memory)
  if ARGV[6] then
    redis.pcall('ZADD', KEYS[i + 3], 'XX', free_from(ttl), string.sub(KEYS[i], #ARGV[6] + 1))
  end
end
return {1, fence, now}
