// Elements, and lists of them that keep what has not changed: focus and scroll positions stay.

const SVG = 'http://www.w3.org/2000/svg'

const put = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (value === true) element.setAttribute(name, '')
    else if (value !== false && value != null) element.setAttribute(name, value)
  }
  element.append(...children.flat().filter((child) => child != null && child !== false))
  return element
}

export const h = (tag, attributes = {}, ...children) => put(document.createElement(tag), attributes, children)
export const s = (tag, attributes = {}, ...children) => put(document.createElementNS(SVG, tag), attributes, children)

/** Show `items` in `parent`: an element for each key, made anew only where `look(item)` says something else. */
export const list = (parent, items, key, look, make) => {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]))
  let at = parent.firstElementChild
  for (const item of items) {
    const name = String(key(item))
    const seen = JSON.stringify(look(item))
    let element = known.get(name)
    known.delete(name)
    if (!element || element.dataset.look !== seen) {
      const made = make(item)
      made.dataset.key = name
      made.dataset.look = seen
      if (element) {
        const focused = element.contains(document.activeElement) && document.activeElement.dataset.name
        if (at === element) at = made
        element.replaceWith(made)
        if (focused) made.querySelector(`[data-name="${focused}"]`)?.focus()
      }
      element = made
    }
    if (element === at) at = at.nextElementSibling
    else parent.insertBefore(element, at)
  }
  for (const gone of known.values()) gone.remove()
}

/** What a button has done, for a moment; screen readers say it. */
export const note = (text) => {
  const line = h('p', {}, text)
  document.getElementById('notes').append(line)
  setTimeout(() => line.remove(), 6000)
}

export const number = (value) => value == null ? '–' : value.toLocaleString('en')

export const duration = (ms) => {
  if (ms == null) return '–'
  const seconds = Math.floor(ms / 1000)
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`
  return `${Math.floor(seconds / 86_400)} d`
}

export const time = (ms) => new Date(ms).toISOString().slice(11, 23)

/** A table whose rows `fill` sets. */
export const table = (caption, columns) => {
  const body = h('tbody')
  const head = h('tr', {}, columns.map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)))
  const element = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', {}, h('thead', {}, head), body))
  return { element, body }
}
