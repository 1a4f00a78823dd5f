-- HEAL: repairs leases. For each lease, locks again the resources that nobody holds, and the resources that the lease's
-- giver still holds. Returns for each lease: 1 if its token now holds all of its resources; 2 if the token holds them,
-- but a fence counter is larger than the lease's fence; 0 if the lease cannot be repaired, because another token holds
-- a resource or a key holds a foreign value. If the result is 0, no key of the lease is changed.
--
-- KEYS: for each resource of each lease the lock key, the fence key, and the readers (see readers.lua).
-- ARGV: for each lease the number of its resources, its token, its ttl, its fence, the minimum ttl of
-- its fence keys, the token of its giver (the lease's own token if there is no giver), and '1' if the lease
-- is an upgrade of the giver's share, else '0'. All ttls are in milliseconds.

--- pttl.lua
--- clock.lua
--- readers.lua
--- tries.lua
-- Returns the action that makes the token hold the resource: 'nothing', 'set' (lock exclusively), 'begin'
-- (become the only reader) or 'join' (become one more reader). Returns nil if others hold the resource, or
-- if `readers` is a key of another type.
local function repair(lock, readers, token, giver, is_upgraded)
  local value = redis.pcall('GET', lock)
  local is_exclusive = readers == lock or is_upgraded
  if not is_exclusive and not read('ZRANGE', readers, '0', '0') then return nil end
  if value == token then return is_exclusive and 'nothing' or 'begin' end
  if not value or value == giver then return is_exclusive and 'set' or 'begin' end
  if is_upgraded then return reads_alone(lock, readers, giver) and 'set' or nil end
  return value == MARKER and not is_exclusive and 'join' or nil
end

-- Before the first write, tries every command that the server may refuse.
local first = 1
for i = 1, #ARGV, 7 do
  local last = first + EACH * ARGV[i] - 1
  for k = first, last, EACH do
    local lock, readers, token = KEYS[k], KEYS[k + 2], ARGV[i + 1]
    local act = repair(lock, readers, token, ARGV[i + 5], ARGV[i + 6] == '1')
    if act and act ~= 'nothing' and not share(lock, readers, token) then
      local error = first_error({keep_value(lock)}) or act ~= 'set' and cannot_change(lock, readers)
      if error then return error end
    end
  end
  first = last + 1
end

local done, at = {}, 1
for i = 1, #ARGV, 7 do
  local token, ttl, fence, memory, giver, is_upgraded = unpack(ARGV, i + 1, i + 6)
  ttl, is_upgraded = tonumber(ttl), is_upgraded == '1'
  local last, is_possible, is_passed, old, act = at + EACH * ARGV[i] - 1, true, false, {}, {}
  -- The fence counter must not expire before the clock has passed the counter's value.
  if fence - now > FENCE_WINDOW then memory = memory + math.ceil((fence - now) / 1000) end
  for k = at, last, EACH do
    act[k] = repair(KEYS[k], KEYS[k + 2], token, giver, is_upgraded)
    old[k] = redis.pcall('GET', KEYS[k + 1]) or '0'
    old[k] = type(old[k]) == 'string' and tonumber(old[k])
    if not act[k] or not old[k] then is_possible = false end
    if old[k] and old[k] > tonumber(fence) then is_passed = true end
  end
  for k = at, last, EACH do
    local lock, readers = KEYS[k], KEYS[k + 2]
    if is_possible and act[k] ~= 'nothing' and not share(lock, readers, token) then
      if act[k] == 'set' then
        if readers ~= lock then redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', '+inf') end
        redis.call('SET', lock, token, 'PX', ttl)
      elseif act[k] == 'begin' then
        begin_reading(lock, readers, token, lasting(lock, ttl))
      else
        join_readers(lock, readers, token, ttl)
        if giver ~= token then stop_reading(lock, readers, giver) end
      end
      if old[k] < tonumber(fence) then redis.call('SET', KEYS[k + 1], fence, 'PX', memory) end
    end
  end
  done[#done + 1] = is_possible and (is_passed and 2 or 1) or 0
  at = last + 1
end
return done
