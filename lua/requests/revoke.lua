-- Revokes all holds with a fence up to the one that the caller has seen, so that a request that
-- arrives late does not touch later holds.
--
-- ARGV[3] now    'now' frees the lock at once, also from another tool. '' only revokes the holds, so
--                that the lock is granted again once their holders have released it. This does not
--                work for another tool
-- ARGV[4] by     the client that revokes, for the history
-- ARGV[5] from   the hold to continue from, as in the last reply; '' at first
-- ARGV[6] fence  the last one that the caller has seen
--
-- Replies:
-- { 'revoked', view before }
-- { 'again', view before, from }  not finished; call again at once
-- Only the first reply has the view; later ones have {}.

local NOW, BY, FROM, UP_TO = ARGV[3] ~= '', ARGV[4], tonumber(ARGV[5]) or 0, tonumber(ARGV[6])

reconcile()

local before = ARGV[5] == '' and view(0, MAX_LISTED, {}) or {}
if lock.cleanup_pending then return { 'again', before, 0 } end
write_nothing()
if lock.foreign and not NOW then return { 'revoked', before } end
-- The other tool's key has voided every hold.
if lock.foreign then UP_TO = math.huge end
if lock.live then revoke_up_to(math.min(UP_TO, last_fence()), 'revoked', BY) end

-- Half a batch, because each hold is marked and recorded as well.
local next_hold, entries = FROM, {}
local batch = redis.call('ZRANGE', HOLDS, FROM, FROM + math.floor(BATCH / 2) - 1)
for i, token in ipairs(batch) do
  local details = details_of(token)
  local cooling, meant = details.status == 'cooling', (tonumber(details.fence) or 0) <= UP_TO
  if NOW and meant then
    if not cooling and i > #batch - HISTORY_LENGTH then
      entries[#entries + 1] = history_entry(token, 'revoked', now, '', BY)
    end
    -- A waiter that did not claim its grant yet keeps waiting with its token.
    if not is_unclaimed(details) then add_tombstone(token, tonumber(details.ttl) or 0) end
    drop_hold(token)
  elseif cooling and meant then
    -- Its holder has already released it, so it can go at once.
    drop_hold(token)
  else
    next_hold = next_hold + 1
  end
end
record(entries)
if lock.count > next_hold then return { 'again', before, next_hold } end

if lock.foreign then
  redis.call('DEL', GUARD)
  lock.written, lock.foreign = nil, false
end
admit()
return { 'revoked', before }
