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
    cdef public object _answer, _phrase, request
    cdef public RequestContext context
    cdef public long long _left
    cdef public bint _has_transactional, _is_verified
    cdef public list items
    cpdef run(self)
    cpdef _finish(self)
    @cython.locals(context=RequestContext, node=Node, replicas=ReplicaManager, item=Item, by_id=bint, items=dict, transactional=list, batch=RecordBatch)
    cpdef _look(self)
    cpdef _locate(self, Item item)
    @cython.locals(batch=RecordBatch)
    cpdef _parse(self, Item item, object records)
    @cython.locals(item=Item)
    cpdef bint _refuse_as_a_whole(self, object transactional) except? -1
    @cython.locals(node=Node, replicas=ReplicaManager, item=Item, batch=RecordBatch)
    cpdef _verify(self, object transactional)
    @cython.locals(item=Item, check=Check)
    cpdef _append(self)
    @cython.locals(node=Node, replicas=ReplicaManager, batch=RecordBatch, check=Check)
    cpdef _append_one(self, Item item)
    @cython.locals(node=Node)
    cpdef _appended(self)
    @cython.locals(item=Item, partition=Partition, result=AppendResult)
    cpdef _await_commit(self)
