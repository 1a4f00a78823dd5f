local token, ttl, proposal, memory = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
--- clock.lua

-- The fence keys are checked before the first write, so an error means that nothing was changed.
local fence, is_queued = 0, false
for i = 1, #KEYS, EACH do
  local last = redis.pcall('GET', KEYS[i + 1]) or '0'
  if type(last) == 'table' then return last end
  last = tonumber(last)
  if not last then
    return redis.error_reply('ERR the fence key ' .. KEYS[i + 1] .. ' holds a foreign value')
  end
  if last >= fence then fence = last + 1 end
  is_queued = redis.pcall('EXISTS', KEYS[i + 2]) == 1 or is_queued
end
-- If a proposal is far from the node's own clock, the node uses the clock's time instead. Otherwise, a fence could be
-- smaller than a fence that the node has forgotten.
local floor = math.abs(proposal - now) <= FENCE_WINDOW and proposal or now
if floor > fence then fence = floor end
if fence >= FENCE_LIMIT then
  return redis.error_reply('ERR the fence key ' .. KEYS[2] .. ' is used up')
end

-- The fence counter must not expire before the clock has passed the counter's value: otherwise, the next
-- fence would be smaller.
if fence - now > FENCE_WINDOW then memory = memory + math.ceil((fence - now) / 1000) end

