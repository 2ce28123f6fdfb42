// Creates elements, and lists that update only changed elements, so that focus and scroll positions stay.

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

/** Show `items` in `parent`: an element for each key, created again only if `look(item)` has changed. */
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
        const error = element.querySelector('.error')
        if (error) made.querySelector('.bar')?.after(error)
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

/** Show for a moment what a button has done, also to screen readers. */
export const note = (text) => {
  const line = h('p', {}, text)
  document.getElementById('notes').append(line)
  setTimeout(() => line.remove(), 6000)
}

/** Do `work`. An error is shown after the form or the buttons of `control`, until the next attempt. */
export const attempt = async (control, work, said) => {
  const place = control.closest('form, .bar') ?? control
  const before = place.nextElementSibling
  if (before?.matches('.error')) before.remove()
  try {
    const answer = await work()
    if (said) note(said(answer))
    return answer
  } catch (error) {
    // The row may have been created again meanwhile, so that `control` is not on the page any more.
    if (place.isConnected) place.after(h('p', { class: 'error', role: 'alert' }, error.message))
    else note(error.message)
    return null
  }
}

/** A button that does `work`. With `question` it asks for confirmation first; `danger` colours it. */
export const button = (text, work, { said, question, danger, ...more } = {}) => h('button', {
  type: 'button',
  class: danger && 'danger',
  'data-name': text,
  ...more,
  onclick: async (event) => {
    const control = event.currentTarget
    if (!question || await sure(question, text)) attempt(control, work, said)
  },
}, text)

/** Ask for confirmation of an action that cannot be undone; resolves to true if it is confirmed. */
export const sure = (question, verb) => new Promise((resolve) => {
  const dialog = h('dialog', { 'aria-label': question },
    h('p', {}, question),
    h('form', { method: 'dialog' }, h('button', { value: 'no', autofocus: true }, 'cancel'),
      h('button', { value: 'yes', class: 'danger' }, verb)))
  dialog.addEventListener('close', () => {
    dialog.remove()
    resolve(dialog.returnValue === 'yes')
  })
  document.body.append(dialog)
  dialog.showModal()
})

/** Call `work` with a form's fields when it is submitted. */
export const onSubmit = (form, work, said) => form.addEventListener('submit', (event) => {
  event.preventDefault()
  attempt(form, () => work(Object.fromEntries(new FormData(form))), said)
})

export const number = (value) => value == null ? '–' : value.toLocaleString('en')

export const duration = (ms) => {
  if (ms == null) return '–'
  const seconds = Math.floor(ms / 1000)
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`
  return `${Math.floor(seconds / 86_400)} d`
}

/** Date and time in UTC; the number itself if a client's timestamp is not a valid JavaScript date. */
export const dateTime = (ms) => {
  const at = new Date(ms)
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString().replace('T', ' ').slice(0, 23)
}

export const time = (ms) => dateTime(ms).split(' ').at(-1)

/** A table; `fill` shows items as its rows, as `list` does. On a narrow screen each cell has the title of its column. */
export const table = (caption, columns) => {
  const body = h('tbody')
  const head = h('tr', {}, columns.map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)))
  const element = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', {}, h('thead', {}, head), body))
  const fill = (items, key, look, make) => list(body, items, key, look, (item) => {
    const row = make(item)
    columns.forEach(([title, kind], at) => {
      row.children[at].dataset.title = title
      if (kind) row.children[at].classList.add(kind)
    })
    return row
  })
  return { element, fill }
}
