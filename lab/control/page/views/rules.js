import { post, remove } from '../api.js'
import { button, h, number, onSubmit, table } from '../dom.js'

export const title = 'Rules'

const EXAMPLES = [
  ['The coordinator commits, and its response is lost', 'EndTxn nth=1 -> lose-answer'],
  ['A commit marker is held back', 'txn.marker -> hold'],
  ['A tenth of all Produce requests finds another leader', 'Produce p=0.1 seed=7 -> error NOT_LEADER_OR_FOLLOWER'],
  ['The second batch is written, and its acknowledgement is lost', 'Produce nth=2 -> lose-answer'],
]

const held = (each) => h('div', {}, `${each.at} ${each.transactional_id ?? each.group ?? each.client_id ?? ''} `,
  each.partitions.join(', '))

const row = (rule) => h('tr', {},
  h('th', { scope: 'row' }, h('code', {}, rule.text)),
  // Links that are cut or slow match nothing.
  h('td', {}, rule.rule.on ? number(rule.hits) : '–'),
  h('td', {}, rule.rule.on ? number(rule.matches) : '–'),
  h('td', {}, rule.held.length ? rule.held.map(held) : '–'),
  h('td', {}, h('div', { class: 'bar' },
    rule.held.length > 0 && button('release', () => post(`v1/faults/${rule.id}/release`),
      { said: (answer) => `${answer.released} released.` }),
    button('remove', () => remove(`v1/faults/${rule.id}`),
      { 'aria-label': `remove rule ${rule.text}`, said: () => 'The rule is removed.' }))),
)

/** The rules for which `wanted` is true; nothing if there are none. */
export const rulesTable = (caption, wanted = () => true) => {
  const { element, fill } = table(caption, [['Rule'], ['Hits', 'number'], ['Matches', 'number'], ['Held'], ['Change']])
  element.hidden = true
  return {
    element,
    on({ faults }) {
      const chosen = faults.filter(wanted)
      element.hidden = chosen.length === 0
      fill(chosen, (rule) => rule.id, (rule) => rule, row)
    },
  }
}

export const show = (root) => {
  const rules = rulesTable('Rules')
  const input = h('input', {
    type: 'text', name: 'rule', 'aria-label': 'A new rule', placeholder: EXAMPLES[0][1], spellcheck: 'false', required: true,
  })
  const form = h('form', {}, input, h('button', {}, 'add the rule'))
  onSubmit(form, () => post('v1/faults', { rule: input.value }), (rule) => `Rule ${rule.id} was added.`)
  root.append(
    h('p', { class: 'lead' }, 'A rule stages a fault: which requests or steps it matches, and what happens at a hit.'),
    form, rules.element, h('h3', {}, 'Examples'),
    h('ul', {}, EXAMPLES.map(([text, rule]) => h('li', {}, `${text}: `, button(rule, () => {
      input.value = rule
      input.focus()
    }, { class: 'mono' })))),
  )
  return {
    watch: { show: ['faults'] },
    on: (name, data) => name === 'faults' && rules.on(data),
  }
}

