-- Revokes one hold, or removes one waiter.
--
-- ARGV[3] now  'now' frees the hold at once. '' only revokes it, so that the lock is granted again
--              once its holder has released it
-- ARGV[4] by   the client that revokes, and why
-- ARGV[5] id   the first characters of the token
-- ARGV[6] from where to continue, as in the last reply; '0 ' at first
--
-- Replies:
-- { 'revoked', holder before, as in view(), now }
-- { 'removed', waiter before, as in view(), now }
-- { 'unknown', view }  no hold and no waiter has this id
-- { 'several', view }  more than one has
-- { 'again', from }    nothing is decided yet; ask again at once

-- How many fields of the state one call looks at.
local SCANNED = 500

local NOW, BY, ID = ARGV[3] ~= '', ARGV[4], ARGV[5]
local cursor, found = string.match(ARGV[6], '^(%d+) (.*)$')

reconcile()
if lock.cleanup_pending then return { 'again', ARGV[6] } end
write_nothing()

-- One call looks at a part of the details, because there may be many.
local scanned = redis.call('HSCAN', STATE, cursor, 'MATCH', 'details:' .. ID .. '*', 'COUNT', SCANNED)
for i = 1, #scanned[2], 2 do
  local token = string.match(scanned[2][i], '^details:(.*)$')
  if token ~= found and (unexpired_hold(token) or redis.call('ZSCORE', QUEUE, token)) then
    if found ~= '' then return { 'several', brief_view() } end
    found = token
  end
end
if scanned[1] ~= '0' then return { 'again', scanned[1] .. ' ' .. found } end
local target, deadline = found, unexpired_hold(found)
if not deadline and not redis.call('ZSCORE', QUEUE, found) then return { 'unknown', brief_view() } end

local shown = deadline and shown_hold(target, int(deadline))
  or (shown_waiter(target, redis.call('ZSCORE', QUEUE, target)))
local reply = { deadline and 'revoked' or 'removed', shown, int(now) }
local details = details_of(target)
local by, entry = string.sub(BY, 1, MAX_DETAIL), nil
if not deadline or is_unclaimed(details) then
  remove_waiter(target, 'removed', by)
elseif details.status == 'cooling' then
  drop_hold(target)
elseif NOW then
  entry = history_entry(target, 'revoked', now, '', by)
  add_tombstone(target, tonumber(details.ttl) or 0)
  drop_hold(target)
elseif hold_state(details) == 'held' then
  details.status = 'revoked ' .. int(now) .. ' ' .. by
  write_details(target, details)
end
admit()
if entry then record({ entry }) end
return reply
