from broker.transactions.transaction cimport Transaction

cpdef Transaction _next(Transaction txn, object state, object last_update_ms, object producer_id=*, object next_producer_id=*, object epoch=*, object last_epoch=*, object timeout_ms=*, object partitions=*, object start_ms=*, object client_version=*)
cpdef _check_producer(Transaction txn, object pending, object producer_id, object epoch, bint ignore_pending=*)
cpdef add_partitions(Transaction txn, object pending, object producer_id, object epoch, object partitions, object client_version, object now_ms)
cpdef verify_partitions(Transaction txn, object producer_id, object epoch, object partitions)
cpdef end_v1(Transaction txn, object pending, object producer_id, object epoch, bint committed, object now_ms)
cpdef end_v2(Transaction txn, object pending, object producer_id, object epoch, bint committed, object now_ms, object fresh_producer_id=*)
cpdef bint _is_epoch_valid_v2(Transaction txn, object epoch, bint repeated) except? -1
cpdef _prepare_v2(Transaction txn, object now_ms, object fresh_producer_id, bint committed)
cpdef complete(Transaction txn, object now_ms)
