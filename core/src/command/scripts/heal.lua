-- HEAL: for each lease 1 if its token holds all its resources now, 2 if it does, but a fence counter has
-- passed the lease's fence, and 0 if others hold some. Foreign values under the names of the fence keys are
-- not touched, and then neither are the locks.
--
-- KEYS: of each resource of each lease the lock key and the fence key.
-- ARGV: of each lease how many resources it has, its token, its ttl, its fence, and the ttl of its fence
-- keys at least.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local done, at = {}, 1
for i = 1, #ARGV, 5 do
  local token, ttl, fence, memory = unpack(ARGV, i + 1, i + 4)
  local last, is_possible, is_passed, old = at + 2 * ARGV[i] - 1, true, false, {}
  -- A counter is forgotten only when the clock has passed it.
  if fence - now > FENCE_WINDOW then memory = memory + math.ceil((fence - now) / 1000) end
  for k = at, last, 2 do
    local holder = redis.pcall('GET', KEYS[k])
    old[k] = redis.pcall('GET', KEYS[k + 1]) or '0'
    old[k] = type(old[k]) == 'string' and tonumber(old[k])
    if (holder and holder ~= token) or not old[k] then is_possible = false end
    if old[k] and old[k] > tonumber(fence) then is_passed = true end
  end
  for k = at, last, 2 do
    if is_possible and redis.call('SET', KEYS[k], token, 'NX', 'PX', ttl) then
      if old[k] < tonumber(fence) then redis.call('SET', KEYS[k + 1], fence, 'PX', memory) end
    end
  end
  done[#done + 1] = is_possible and (is_passed and 2 or 1) or 0
  at = last + 1
end
return done
