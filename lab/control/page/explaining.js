// A card of the page with the explanations of `odradek explain`.

import { get } from './api.js'
import { button, h } from './dom.js'

/** A card that is hidden until `explain(name, about)` fills it; `about` is the query of GET /v1/explain. */
export const explaining = () => {
  const card = h('section', { class: 'card', hidden: true, 'aria-live': 'polite', 'aria-label': 'Explanation' })
  const explain = async (name, about) => {
    const { explanations } = await get(`v1/explain?${new URLSearchParams(about)}`)
    card.replaceChildren(
      h('h3', {}, `Why: ${name}`, button('close', () => { card.hidden = true })),
      ...explanations.flatMap(({ subject, lines }) =>
        [explanations.length > 1 && h('h4', {}, subject), h('pre', {}, lines.join('\n'))]).filter(Boolean))
    card.hidden = false
    card.scrollIntoView({ block: 'nearest' })
  }
  return { card, explain }
}
