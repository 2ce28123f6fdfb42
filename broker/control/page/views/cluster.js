import { post } from '../api.js'
import { duration, h, list, note, number, time } from '../dom.js'
import { rulesTable } from './rules.js'

export const title = 'Nodes and clock'

const ADVANCES = [['10 s', '10s'], ['1 min', '1m'], ['15 min', '15m'], ['1 h', '1h'], ['7 d', '7d']]
const ALL = 'transactions,ids,groups,retention'

const act = async (path, body, said) => {
  try {
    await post(path, body)
    note(said)
  } catch (error) {
    note(error.message)
  }
}

const button = (node, what, past, danger) => h('button', {
  class: danger && 'danger',
  'data-name': what,
  'aria-label': `${what} node ${node}`,
  onclick: () => act(`v1/nodes/${node}/${what}`, {}, `Node ${node} ${past}.`),
}, what)

const buttons = ({ node, state }) => {
  if (state === 'running') {
    return [button(node, 'kill', 'was killed', true), button(node, 'stop', 'was stopped'), button(node, 'pause', 'is paused')]
  }
  if (state === 'paused') return [button(node, 'resume', 'goes on'), button(node, 'kill', 'was killed', true)]
  return state === 'killed' || state === 'stopped' ? [button(node, 'start', 'runs again')] : []
}

const card = (node, controls) => h('section', { class: 'card', 'aria-label': `Node ${node.node}` },
  h('h3', {}, `Node ${node.node}`,
    h('span', { class: `state ${node.state === 'running' ? 'good' : node.state === 'paused' ? 'open' : 'bad'}` }, node.state)),
  h('p', { class: 'mono' }, node.address),
  h('p', { class: 'quiet' }, `leads ${number(node.leads)} of ${number(node.replicas)} replicas, `,
    `${number(node.connections)} connections`, node.skew_ms ? `, clock off by ${node.skew_ms} ms` : ''),
  controls && h('div', { class: 'bar' }, buttons(node)),
)

const linkForm = (nodes) => {
  const choice = (label, chosen) => h('select', { 'aria-label': label },
    nodes.map(({ node }, place) => h('option', { value: node, selected: place === chosen }, `node ${node}`)))
  const [from, to] = [choice('One end of the link', 0), choice('The other end of the link', 1)]
  const form = h('form', {}, 'Cut the link between', from, 'and', to, h('button', {}, 'cut'))
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    act('v1/faults', { action: { do: 'cut', nodes: [Number(from.value), Number(to.value)] } }, 'The link is cut.')
  })
  return form
}

export const show = (root, { product }) => {
  const nodes = h('div', { class: 'nodes' })
  const clock = h('p', {})
  const links = h('div')
  const cuts = rulesTable('Cut and slow links', ({ rule }) => ['cut', 'slow-link'].includes(rule.action.do))
  const isBroker = product() !== 'proxy'
  root.append(nodes)
  if (isBroker) {
    root.append(
      h('h3', {}, 'Links between nodes'), links, cuts.element,
      h('h3', {}, 'Clock'), clock,
      h('div', { class: 'bar' }, 'Advance by', ADVANCES.map(([text, by]) =>
        h('button', { onclick: () => act('v1/clock/advance', { by, only: ALL.split(',') }, `The clock is ${text} ahead.`) },
          text))),
      h('p', { class: 'lead' }, 'Timers that fall due fire before the button answers: transactions time out, ids and offsets ',
        'expire, retention deletes.'),
    )
  } else {
    root.append(h('p', { class: 'lead' }, 'A proxy sees requests and responses: it does not end nodes, cut links between ',
      'them or move their clocks.'))
  }
  let known = 0
  return {
    watch: { show: isBroker ? ['faults'] : [] },
    on(name, data) {
      if (name === 'faults') cuts.on(data)
      if (name !== 'cluster') return
      list(nodes, data.nodes, (node) => node.node, (node) => node, (node) => card(node, isBroker))
      clock.textContent = `${time(data.now_ms).slice(0, 8)} UTC` +
        (data.ahead_ms ? `, ${duration(data.ahead_ms)} ahead of real time` : '')
      if (data.nodes.length === known) return
      known = data.nodes.length
      links.replaceChildren(known > 1 ? linkForm(data.nodes) : h('p', { class: 'quiet' }, 'One node has no links.'))
    },
  }
}
