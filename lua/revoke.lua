-- Revokes all holds with a fence up to the one that the caller has seen, so that a request that arrives
-- late harms none of those who came since. Neither the queue nor the fence is touched.
--
-- ARGV[3] 'now'  to free the lock at once, another tool's lock too; '': only revoke the holds, so that
--                the lock moves on when their holders have released it; another tool cannot be told
-- ARGV[4] by     who does it, for the record
-- ARGV[5] from   which hold on to go on, as the last reply says; '' at first
-- ARGV[6] fence  that the caller has seen last
--
-- { 'revoked', view before, with as many holders as a reply lists }
-- { 'again', view before, from }  there is more to be done; to be called again at once
-- The view is only in the first reply; later ones have {}.

local NOW, BY, FROM = ARGV[3] ~= '', ARGV[4], tonumber(ARGV[5]) or 0
local UP_TO = tonumber(ARGV[6])

reconcile()

local before = ARGV[5] == '' and view(0, LISTED, nil, false) or {}
if leftovers then return { 'again', before, 0 } end
if foreign and not NOW then return { 'revoked', before } end
write_on()
if live then revoke(math.min(UP_TO, last_fence()), 'revoked', BY) end

-- Fewer than elsewhere: each of them is marked and recorded as well.
local batch = redis.call('ZRANGE', HOLDS, FROM, FROM + math.floor(BATCH / 2) - 1)
for i, token in ipairs(batch) do
  local explicit, its_fence, acquired, ttl = unpack(redis.call('HMGET', STATE, token .. ':standing',
    token .. ':fence', token .. ':acquired', token .. ':ttl'))
  local deadline = tonumber(redis.call('ZSCORE', HOLDS, token))
  local cooling, meant = explicit == 'cooling', tonumber(its_fence or 0) <= UP_TO
  if NOW and meant then
    if not cooling and i > #batch - LAST then record(line_about(token, 'revoked', now, '', BY)) end
    -- A waiter that has not claimed its grant goes on waiting with its token.
    if deadline ~= tonumber(acquired or 0) + CLAIM then mark_over(token, tonumber(ttl or 0)) end
    drop(token)
  elseif cooling and meant and not foreign then
    -- What has been released already goes at once.
    drop(token)
  else
    FROM = FROM + 1
  end
end
if count > FROM then return { 'again', before, FROM } end

if foreign then
  redis.call('DEL', GUARD)
  redis.call('HDEL', STATE, 'guard', 'mode')
  written, foreign = nil, false
end
admit()
return { 'revoked', before }
