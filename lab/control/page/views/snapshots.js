// Buttons of several views to take and restore snapshots of the broker, and to reset it.

import { get, post, remove } from '../api.js'
import { attempt, button, h } from '../dom.js'

const path = (id) => `v1/snapshots/${id}`

/** A bar of buttons, followed by the existing snapshots. */
export const snapshotBar = () => {
  const kept = h('span', { class: 'bar' })
  const bar = h('div', { class: 'bar' })
  const look = async () => {
    const { snapshots } = await get('v1/snapshots')
    kept.replaceChildren(...snapshots.flatMap(({ id, topics }) => [
      button(`restore ${id}`, () => post(`${path(id)}/restore`), {
        danger: true,
        question: `Really restore snapshot ${id}? Everything that happened after it is removed, and all connections are reset.`,
        said: () => `Snapshot ${id} is restored.`,
        title: `Topics: ${topics.filter((each) => !each.startsWith('__')).join(', ') || 'none'}`,
      }),
      button(`remove ${id}`, async () => {
        await remove(path(id))
        await look()
      }),
    ]))
  }
  bar.append(
    button('keep a snapshot', async () => {
      const snapshot = await post('v1/snapshots')
      await look()
      return snapshot
    }, { said: ({ id }) => `Snapshot ${id} is kept until the broker ends.` }),
    kept,
    button('reset the broker', () => post('v1/reset'), {
      danger: true,
      question: 'Really reset the broker? All topics, groups, transactional ids, rules and the trace are gone.',
      said: () => 'The broker is as it was after its start.',
    }),
  )
  attempt(kept, look)
  return bar
}
