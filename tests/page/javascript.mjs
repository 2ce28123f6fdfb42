// Call functions of the page's modules that import nothing: {file, name, args} in, its result out, a line of JSON each.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const load = (file) => import(`data:text/javascript,${encodeURIComponent(readFileSync(file, 'utf-8'))}`)

for await (const line of createInterface({ input: process.stdin })) {
  const { file, name, args } = JSON.parse(line)
  let answer
  try {
    answer = { result: (await load(file))[name](...args) ?? null }
  } catch (error) {
    answer = { error: error.message }
  }
  console.log(JSON.stringify(answer))
}
