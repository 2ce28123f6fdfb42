from broker.transactions.transaction cimport Transaction

cpdef state_batch(Transaction txn, object value_version, object now_ms)
cpdef value_bytes(Transaction txn, object version)
