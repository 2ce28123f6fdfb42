cdef extern from *:
    ctypedef class broker.transactions.transaction.Transaction [object PyTupleObject, check_size ignore]:
        cdef object transactional_id "ob_item[0]"
        cdef object producer_id "ob_item[1]"
        cdef object previous_producer_id "ob_item[2]"
        cdef object next_producer_id "ob_item[3]"
        cdef object epoch "ob_item[4]"
        cdef object last_epoch "ob_item[5]"
        cdef object timeout_ms "ob_item[6]"
        cdef object state "ob_item[7]"
        cdef object partitions "ob_item[8]"
        cdef object start_ms "ob_item[9]"
        cdef object last_update_ms "ob_item[10]"
        cdef object client_version "ob_item[11]"
    ctypedef class broker.transactions.transaction.Answer [object PyTupleObject, check_size ignore]:
        cdef object error "ob_item[0]"
        cdef object producer_id "ob_item[1]"
        cdef object epoch "ob_item[2]"
    ctypedef class broker.transactions.transaction.Transition [object PyTupleObject, check_size ignore]:
        cdef object after "ob_item[0]"
        cdef object answer "ob_item[1]"
    ctypedef class broker.transactions.transaction.AbortFirst [object PyTupleObject, check_size ignore]:
        cdef object answer "ob_item[0]"
