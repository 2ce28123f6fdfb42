// The appearance of the trace's lines, and the APIs that are left out.

/** APIs of frequent requests: the filter `without` of the trace leaves them out, unless a rule has hit them. */
export const QUIET = 'Fetch,Heartbeat,ConsumerGroupHeartbeat'

/** Errors after which a client retries by itself. */
const RETRIABLE = ['CONCURRENT_TRANSACTIONS', 'COORDINATOR_LOAD_IN_PROGRESS', 'COORDINATOR_NOT_AVAILABLE', 'NOT_COORDINATOR',
  'NOT_LEADER_OR_FOLLOWER', 'LEADER_NOT_AVAILABLE', 'UNKNOWN_TOPIC_OR_PARTITION', 'UNKNOWN_TOPIC_ID', 'NOT_ENOUGH_REPLICAS',
  'NOT_ENOUGH_REPLICAS_AFTER_APPEND', 'REQUEST_TIMED_OUT', 'NETWORK_EXCEPTION', 'REBALANCE_IN_PROGRESS', 'FENCED_LEADER_EPOCH',
  'UNKNOWN_LEADER_EPOCH', 'OFFSET_NOT_AVAILABLE', 'UNSTABLE_OFFSET_COMMIT', 'THROTTLING_QUOTA_EXCEEDED', 'MEMBER_ID_REQUIRED',
  'NOT_CONTROLLER', 'KAFKA_STORAGE_ERROR', 'FETCH_SESSION_ID_NOT_FOUND', 'INVALID_FETCH_SESSION_EPOCH']

/** '' for success, 'retriable' for errors that the client retries, 'odd' for other errors and for lost responses. */
export const kindOf = ({ outcome, line }) => {
  if (!['answered', 'unanswered', 'in_progress'].includes(outcome)) return 'odd'
  const said = line.slice(line.lastIndexOf(' -> ') + 4).split(' ')
    .map((word) => word.slice(word.lastIndexOf(':') + 1)).filter((word) => /^[A-Z][A-Z_]+$/.test(word))
  if (!said.length || outcome === 'in_progress' || line.includes(' -> ok')) return ''
  return said.every((each) => RETRIABLE.includes(each)) ? 'retriable' : 'odd'
}
