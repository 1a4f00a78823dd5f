-- HEAL: for each lease 1 if its token holds all its resources now, and 0 if others hold some. Foreign
-- values under the names of the fence keys are not touched, and then neither are the locks.
--
-- KEYS: of each resource of each lease the lock key and the fence key.
-- ARGV: of each lease how many resources it has, its token, its ttl, its fence, and the ttl of its fence
-- keys.

local done, at = {}, 1
for i = 1, #ARGV, 5 do
  local token, ttl, fence, memory = unpack(ARGV, i + 1, i + 4)
  local last, is_possible, old = at + 2 * ARGV[i] - 1, true, {}
  for k = at, last, 2 do
    local holder = redis.pcall('GET', KEYS[k])
    old[k] = redis.pcall('GET', KEYS[k + 1]) or '0'
    old[k] = type(old[k]) == 'string' and tonumber(old[k])
    if (holder and holder ~= token) or not old[k] then is_possible = false end
  end
  for k = at, last, 2 do
    if is_possible and redis.call('SET', KEYS[k], token, 'NX', 'PX', ttl) then
      if old[k] < tonumber(fence) then redis.call('SET', KEYS[k + 1], fence, 'PX', memory) end
    end
  end
  done[#done + 1] = is_possible and 1 or 0
  at = last + 1
end
return done
