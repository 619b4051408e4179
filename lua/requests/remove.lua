-- Revokes one hold, or removes one waiter.
--
-- ARGV[3] now  'now' frees the hold at once. '' only revokes it, so that the lock is granted again
--              once its holder has released it
-- ARGV[4] by   the client that revokes, and why
-- ARGV[5] id   the first characters of the token
--
-- Replies:
-- { 'revoked', holder before, as in view(), now }
-- { 'removed', waiter before, as in waiters(), now }
-- { 'unknown', view }  no hold and no waiter has this id
-- { 'several', view }  more than one has
-- { 'again' }          nothing is decided yet; ask again at once

local NOW, BY, ID = ARGV[3] ~= '', ARGV[4], ARGV[5]

reconcile()
if lock.leftovers then return { 'again' } end

local target, deadline, several = nil, nil, false
for _, key in ipairs({ HOLDS, QUEUE }) do
  local cursor = '0'
  repeat
    local found = redis.call('ZSCAN', key, cursor, 'MATCH', ID .. '*', 'COUNT', 1000)
    cursor = found[1]
    for i = 1, #found[2], 2 do
      local token = found[2][i]
      local its_deadline = key == HOLDS and unexpired_hold(token) or nil
      if key == QUEUE or its_deadline then
        several = several or target and target ~= token
        target, deadline = token, deadline or its_deadline
      end
    end
  until cursor == '0'
end
if not target then return { 'unknown', brief_view() } end
if several then return { 'several', brief_view() } end

bypass_oom()
local shown = deadline and shown_hold(target, int(deadline))
  or (shown_waiter(target, redis.call('ZSCORE', QUEUE, target)))
local reply = { deadline and 'revoked' or 'removed', shown, int(now) }
local standing, fence, renewed, ttl = unpack(redis.call('HMGET', STATE, target .. ':standing',
  target .. ':fence', target .. ':renewed', target .. ':ttl'))
local by, entry = string.sub(BY, 1, MAX_DETAIL), nil
if not deadline or renewed == '' then
  remove_waiter(target, 'removed', by)
elseif standing == 'cooling' then
  drop_hold(target)
elseif NOW then
  entry = history_entry(target, 'revoked', now, '', by)
  mark_over(target, tonumber(ttl or 0))
  drop_hold(target)
elseif hold_state(standing, fence) == 'held' then
  uncount(target)
  redis.call('HSET', STATE, target .. ':standing', 'revoked ' .. int(now) .. ' ' .. by)
end
admit()
if entry then record({ entry }) end
return reply
