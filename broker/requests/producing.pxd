cimport cython
from broker.node.context cimport RequestContext
from broker.node.node cimport Node
from broker.replicas.manager cimport ReplicaManager
from broker.replicas.partition.append_result cimport AppendResult
from broker.replicas.partition.partition cimport Partition
from broker.transactions.verification cimport Check
from protocol.batch cimport RecordBatch

@cython.freelist(16)
cdef class Item:
    cdef public object name, topic_id, index
    cdef public RecordBatch batch
    cdef public Partition partition
    cdef public Check check
    cdef public AppendResult result

cdef class Produce:
    cdef public object _phrase, request
    cdef public RequestContext context
    cdef public bint _has_transactional
    cdef public list items
    @cython.locals(context=RequestContext, node=Node, replicas=ReplicaManager, item=Item, by_id=bint, items=dict, transactional=list, batch=RecordBatch)
    cpdef _look(self)
    cpdef _locate(self, Item item)
    @cython.locals(batch=RecordBatch)
    cpdef _parse(self, Item item, object records)
    @cython.locals(item=Item)
    cpdef bint _refuse_as_a_whole(self, object transactional) except? -1
    @cython.locals(item=Item, check=Check)
    cpdef list _append(self)
    @cython.locals(node=Node, replicas=ReplicaManager, batch=RecordBatch, check=Check)
    cpdef _append_one(self, Item item)
    @cython.locals(item=Item, partition=Partition, result=AppendResult)
    cpdef list _uncommitted(self)
