// Finds the rules that hold requests or markers of a transaction.

/**
 * What rules hold of a transaction: [{id, text, at, partitions, isSure}]. A request with several transactional ids, as
 * WriteTxnMarkers may have, possibly belongs to another transaction.
 */
export const holders = (txn, faults) => {
  const mine = new Set(txn.partitions)
  const found = []
  for (const { id, text, held } of faults) {
    for (const { at, transactional_id: owner, partitions } of held) {
      const isSure = owner !== null && owner === txn.transactional_id
      const places = partitions.filter((each) => mine.has(each))
      const mayBe = owner === null && at === 'WriteTxnMarkers' && places.length > 0
      if (!isSure && !mayBe) continue
      const same = found.find((each) => each.id === id && each.at === at && each.isSure === isSure)
      const named = isSure ? partitions : places
      if (same) same.partitions = [...new Set([...same.partitions, ...named])]
      else found.push({ id, text, at, partitions: named, isSure })
    }
  }
  return found
}
