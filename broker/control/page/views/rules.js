import { post, remove } from '../api.js'
import { h, list, note, number, table } from '../dom.js'

export const title = 'Rules'

const EXAMPLES = [
  ['The coordinator commits, and its answer is lost', 'EndTxn nth=1 -> lose-answer'],
  ['A commit marker is held back', 'txn.marker -> hold'],
  ['A tenth of all Produce requests finds another leader', 'Produce p=0.1 seed=7 -> error NOT_LEADER_OR_FOLLOWER'],
  ['The second batch is written, and its acknowledgement is lost', 'Produce nth=2 -> lose-answer'],
]

const attempt = async (work, said) => {
  try {
    const answer = await work()
    note(said(answer))
  } catch (error) {
    note(error.message)
  }
}

const held = (each) => h('div', {}, `${each.at} ${each.transactional_id ?? each.group ?? each.client_id ?? ''} `,
  each.partitions.join(', '))

const row = (rule) => h('tr', {},
  h('th', { scope: 'row' }, h('code', {}, rule.text)),
  // Links that are cut or slow match nothing.
  h('td', { class: 'number' }, rule.rule.on ? number(rule.hits) : '–'),
  h('td', { class: 'number' }, rule.rule.on ? number(rule.matches) : '–'),
  h('td', {}, rule.held.length ? rule.held.map(held) : '–'),
  h('td', {}, h('div', { class: 'bar' },
    rule.held.length > 0 && h('button', {
      'data-name': 'release',
      onclick: () => attempt(() => post(`v1/faults/${rule.id}/release`), (answer) => `${answer.released} released.`),
    }, 'release'),
    h('button', {
      'data-name': 'remove',
      'aria-label': `remove rule ${rule.text}`,
      onclick: () => attempt(() => remove(`v1/faults/${rule.id}`), () => 'The rule is removed.'),
    }, 'remove'))),
)

/** The rules that `wanted` chooses, and nothing where there are none. */
export const rulesTable = (caption, wanted = () => true) => {
  const { element, body } = table(caption, [['Rule'], ['Hits', 'number'], ['Matches', 'number'], ['Held'], ['Change']])
  element.hidden = true
  return {
    element,
    on({ faults }) {
      const chosen = faults.filter(wanted)
      element.hidden = chosen.length === 0
      list(body, chosen, (rule) => rule.id, (rule) => rule, row)
    },
  }
}

export const show = (root) => {
  const rules = rulesTable('Rules')
  const input = h('input', {
    type: 'text', name: 'rule', 'aria-label': 'A new rule', placeholder: EXAMPLES[0][1], spellcheck: 'false', required: true,
  })
  const form = h('form', {}, input, h('button', {}, 'add the rule'))
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    attempt(() => post('v1/faults', { rule: input.value }), (rule) => `Rule ${rule.id} holds.`)
  })
  root.append(
    h('p', { class: 'lead' }, 'A rule stages a fault: which requests or steps it matches, and what happens at a hit.'),
    form, rules.element, h('h3', {}, 'Some to begin with'),
    h('ul', {}, EXAMPLES.map(([text, rule]) => h('li', {}, `${text}: `, h('button', {
      class: 'mono',
      onclick: () => {
        input.value = rule
        input.focus()
      },
    }, rule)))),
  )
  return {
    watch: { show: ['faults'] },
    on: (name, data) => name === 'faults' && rules.on(data),
  }
}

