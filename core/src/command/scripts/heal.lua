-- HEAL: repairs leases, by locking their missing resources again, and those that the giver of an
-- adopted lease still holds. Returns for each lease 1 if its token now holds all its resources, 2 if
-- it does but a fence counter has passed the lease's fence, and 0 if another token holds one. If a
-- fence key holds a foreign value, nothing of the lease is changed.
--
-- KEYS: for each resource of each lease the lock key and the fence key.
-- ARGV: for each lease the number of its resources, its token, its ttl, its fence, the minimum ttl of
-- its fence keys, and the token of its giver (its own token if there is none). All ttls are in
-- milliseconds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local done, at = {}, 1
for i = 1, #ARGV, 6 do
  local token, ttl, fence, memory, giver = unpack(ARGV, i + 1, i + 5)
  local last, is_possible, is_passed, old, set = at + 2 * ARGV[i] - 1, true, false, {}, {}
  -- The fence counter must not expire before the clock has passed its value.
  if fence - now > FENCE_WINDOW then memory = memory + math.ceil((fence - now) / 1000) end
  for k = at, last, 2 do
    local holder = redis.pcall('GET', KEYS[k])
    old[k] = redis.pcall('GET', KEYS[k + 1]) or '0'
    old[k] = type(old[k]) == 'string' and tonumber(old[k])
    set[k] = not holder or (holder == giver and holder ~= token)
    if (not set[k] and holder ~= token) or not old[k] then is_possible = false end
    if old[k] and old[k] > tonumber(fence) then is_passed = true end
  end
  for k = at, last, 2 do
    if is_possible and set[k] then
      redis.call('SET', KEYS[k], token, 'PX', ttl)
      if old[k] < tonumber(fence) then redis.call('SET', KEYS[k + 1], fence, 'PX', memory) end
    end
  end
  done[#done + 1] = is_possible and (is_passed and 2 or 1) or 0
  at = last + 1
end
return done
