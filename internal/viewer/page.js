'use strict'
// The replay page. It reads the lines of a trace file (docs/replay.md) and
// nothing else: load makes a model of them, draw shows the part of it that is
// visible, and show tells of the line at the cursor.

const rowHeight = 18
const headHeight = 40
const maxHeight = 12e6 // of the scrolled page; browsers refuse much more
const bucketRows = 128 // arrows, bands and calls are found by the rows that they cross

const $ = id => document.getElementById(id)
const safe = s => String(s).replace(/[&<>"]/g, c => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }[c]))
const seconds = ns => (ns / 1e9).toFixed(3) + ' s'
const role = { follower: '○', precandidate: '◌', candidate: '◇', leader: '★', down: '✕' }

let model = emptyModel()
let cursor = 0
let logEnd = 0 // the last index of the log table; 0: the end of the longest log

// ---------------------------------------------------------------- the model

function emptyModel () {
  return {
    run: { Servers: [] }, verdict: null,
    rows: [], // what has a line of its own, in order
    messages: new Map(), calls: new Map(), faults: new Map(),
    servers: new Map(), // by id: { steps: [row], lives: [{state, term, from}], logs: [change] }
    buckets: []
  }
}

// build makes the model of a trace's lines.
function build (lines) {
  const m = emptyModel()
  const next = (at, server) => { // the row of something that has none: that of the step it belongs to
    const last = m.rows.length - 1
    return last >= 0 && m.rows[last].At === at && m.rows[last].Server === server ? last : last + 1
  }
  const add = (line, more) => { m.rows.push(Object.assign(line, more)); return m.rows.length - 1 }
  const handlers = {
    run (l) {
      m.run = l
      for (const id of l.Servers) m.servers.set(id, { steps: [], lives: [], logs: [] })
    },
    step (l) {
      const row = add(l)
      const s = m.servers.get(l.Server)
      s.steps.push(row)
      const state = l.Down ? 'down' : l.State
      const life = s.lives.at(-1)
      if (!life || life.state !== state || life.term !== l.Term) {
        s.lives.push({ state, term: l.Term, from: row })
        l.turn = true
      }
      const message = l.Message && m.messages.get(l.Message)
      if (message) {
        const copy = message.copies.find(c => c.step === undefined && !c.down)
        if (copy) {
          copy.step = row
          copy.waits = copy.at < l.At
        }
      }
    },
    log (l) {
      const s = m.servers.get(l.Server)
      s.logs.push({ row: m.rows.length - 1, from: l.From, entries: l.Entries })
    },
    send (l) {
      const message = Object.assign(l, { row: next(l.At, l.From), copies: [] })
      m.messages.set(l.Message, message)
    },
    arrive (l) {
      const message = m.messages.get(l.Message)
      if (message) message.copies.push({ at: l.At, row: m.rows.length, down: l.Down }) // drawn there if it waits
    },
    call (l) { m.calls.set(l.Call, Object.assign(l, { row: add(l) })) },
    attempt (l) {
      const call = m.calls.get(l.Call)
      if (call) (call.attempts ??= []).push({ at: l.At, server: l.Server })
    },
    effect (l) {
      const call = m.calls.get(l.Call)
      if (call && (!call.answer || !call.effect)) call.effect = Object.assign(l, { row: m.rows.length - 1 })
    },
    answer (l) {
      const call = m.calls.get(l.Call)
      const row = add(l)
      if (call) { call.answer = l; call.end = row }
    },
    fault (l) { m.faults.set(l.Fault, Object.assign(l, { row: add(l) })) },
    'fault end' (l) {
      const fault = m.faults.get(l.Fault)
      l.fault = fault
      const row = add(l)
      if (fault) { fault.end = row; fault.endAt = l.At }
    },
    verdict (l) {
      l.short = l.Failure && (l.Text.startsWith(l.Failure) ? l.Text : l.Failure + ': ' + l.Text).split('\n')[0]
      m.verdict = l
      add(l)
    }
  }
  for (const l of lines) if (handlers[l.Kind]) handlers[l.Kind](l)
  arrange(m)
  return m
}

// arrange gives calls and faults their lanes, and notes in which rows each thing
// is to be drawn.
function arrange (m) {
  const end = m.rows.length
  const lanes = (things, from, to) => {
    const free = [] // by lane: the row at which it is free again
    for (const t of things) {
      let lane = free.findIndex(row => row <= from(t))
      if (lane < 0) lane = free.length
      free[lane] = to(t) + 1
      t.lane = lane
    }
    return free.length
  }
  m.callLanes = lanes([...m.calls.values()], c => c.row, c => c.end ?? end)
  const wide = [...m.faults.values()].filter(f => !f.Servers)
  m.faultLanes = lanes(wide, f => f.row, f => f.end ?? end)

  const put = (thing, from, to) => {
    for (let b = Math.floor(from / bucketRows); b <= Math.floor(Math.min(to, end) / bucketRows); b++) {
      (m.buckets[b] ??= new Set()).add(thing)
    }
  }
  for (const x of m.messages.values()) {
    x.shape = 'message'
    put(x, x.row, Math.max(x.row + 2, ...x.copies.map(c => c.step ?? c.row + 1)))
  }
  for (const c of m.calls.values()) { c.shape = 'call'; put(c, c.row, Math.max(c.end ?? end, c.effect?.row ?? 0)) }
  for (const f of m.faults.values()) { f.shape = 'fault'; put(f, f.row, f.end ?? end) }
  m.servers.forEach((s, id) => s.lives.forEach((life, i) => {
    life.shape = 'life'
    life.server = id
    life.to = s.lives[i + 1]?.from ?? end
    put(life, life.from, life.to)
  }))
}

// before returns how many of the sorted rows are at or before row.
function before (rows, row, of = x => x) {
  let lo = 0; let hi = rows.length
  while (lo < hi) {
    const mid = (lo + hi) >> 1
    if (of(rows[mid]) <= row) lo = mid + 1; else hi = mid
  }
  return lo
}

// stateAt returns the latest step of a server at or before row.
function stateAt (id, row) {
  const { steps } = model.servers.get(id)
  const n = before(steps, row)
  return n ? model.rows[steps[n - 1]] : null
}

// logAt returns a server's log at row: its entries, index 1 first.
function logAt (id, row) {
  const s = model.servers.get(id)
  const n = before(s.logs, row, c => c.row)
  const every = 256 // keep a whole copy now and then, so that stepping back is quick
  s.copies ??= [[]]
  for (let i = s.copies.length; i * every <= n; i++) {
    s.copies[i] = change(s.copies[i - 1].slice(), s.logs.slice((i - 1) * every, i * every))
  }
  const base = Math.floor(n / every)
  return change(s.copies[base].slice(), s.logs.slice(base * every, n))
}

function change (log, changes) {
  for (const c of changes) {
    log.length = c.from - 1
    for (const e of c.entries) log.push(e)
  }
  return log
}

// describe tells what a row is about: who, and what.
function describe (row) {
  switch (row.Kind) {
    case 'step': return { who: 'n' + row.Server, what: row.What.replace(/^n\d+: /, 'from $&'), more: row.Changes ?? '' }
    case 'call': return { who: 'client ' + row.Client, what: 'calls: ' + row.Text, more: '' }
    case 'answer': return { who: 'client ' + row.Client, what: row.Outcome + ': ' + row.Text, more: '' }
    case 'fault': return { who: 'fault', what: row.Text + (row.Links ? ' (' + links(row.Links) + ')' : ''), more: '' }
    case 'fault end': return { who: 'over', what: row.fault ? row.fault.Text : '', more: '' }
    case 'verdict': return { who: row.Failure ? 'FAILED' : 'ok', what: row.Failure ? row.short : 'nothing was broken', more: '' }
  }
}

// links names directions, both of them together where both are cut.
function links (list) {
  const has = new Set(list.map(([a, b]) => a + '→' + b))
  const words = []
  for (const [a, b] of list) {
    if (!has.has(b + '→' + a)) words.push('n' + a + '→n' + b)
    else if (a < b) words.push('n' + a + '↔n' + b)
  }
  return words.join(' ')
}

// ---------------------------------------------------------------- the chart

// place says where things stand, from left to right.
function place () {
  const chart = $('chart')
  const servers = model.run.Servers
  const faults = 84
  const first = faults + model.faultLanes * 12 + 16
  const column = Math.max(84, Math.min(160, (chart.clientWidth - first - model.callLanes * 11 - 420) / Math.max(1, servers.length)))
  const calls = first + servers.length * column + 4
  const text = calls + model.callLanes * 11 + 16
  return {
    faults, calls, text, column, first,
    width: Math.max(chart.clientWidth, text + 430),
    height: chart.clientHeight,
    server: id => first + servers.indexOf(id) * column + 14
  }
}

let layout
let scale = 1 // rows scrolled by one row's height of the page

function resize () {
  layout = place()
  const chart = $('chart')
  const whole = headHeight + (model.rows.length + 3) * rowHeight
  const spacer = Math.min(whole, maxHeight)
  scale = spacer > layout.height ? (whole - layout.height) / (spacer - layout.height) : 1
  $('spacer').style.height = Math.max(spacer, chart.clientHeight) + 'px'
  $('spacer').style.width = layout.width + 'px'
  $('svg').setAttribute('width', layout.width)
  $('svg').setAttribute('height', layout.height)
  draw()
}

const scrolled = () => $('chart').scrollTop * scale
const termColor = t => `hsl(${(t * 67 + 200) % 360} 70% var(--term-light))`

function draw () {
  const y = row => headHeight + (row + 0.5) * rowHeight - scrolled()
  const first = Math.max(0, Math.floor(scrolled() / rowHeight) - 1)
  const last = Math.min(model.rows.length - 1, first + Math.ceil((layout.height - headHeight) / rowHeight) + 2)
  const out = ['<defs>' +
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="var(--faint)" stroke-width="2" opacity=".45"/></pattern>' +
    '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--faint)"/></marker>' +
    '<marker id="picked" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--focus)"/></marker></defs>']
  out.push(`<rect class="cursor" x="0" y="${y(cursor) - rowHeight / 2}" width="${layout.width}" height="${rowHeight}"/>`)

  const visible = new Set()
  for (let b = Math.floor(first / bucketRows); b <= Math.floor(last / bucketRows); b++) {
    for (const thing of model.buckets[b] ?? []) visible.add(thing)
  }
  const cut = (from, to) => [Math.max(y(from), headHeight - 20), Math.min(y(to), layout.height + 20)]
  const arrows = []
  for (const thing of visible) {
    if (thing.shape === 'fault') drawFault(out, thing, cut)
    if (thing.shape === 'life') drawLife(out, thing, cut)
    if (thing.shape === 'call') drawCall(out, thing, cut, y)
    if (thing.shape === 'message') arrows.push(thing)
  }
  const tags = []
  for (const message of arrows) drawMessage(out, tags, message, y)
  for (let r = first; r <= last; r++) drawRow(out, r, y(r))
  out.push(...tags)
  drawHead(out)
  $('svg').innerHTML = out.join('')
}

function drawFault (out, f, cut) {
  const [y0, y1] = cut(f.row, f.end ?? model.rows.length)
  const title = `<title>${safe(describe(f).what)}, from ${seconds(f.At)}${f.end === undefined ? '' : ' to ' + seconds(f.endAt)}</title>`
  if (f.Servers) {
    for (const id of f.Servers) {
      const down = f.Text.endsWith('is down')
      out.push(`<rect class="${down ? 'down' : 'band'} fault" x="${layout.server(id) - 11}" y="${y0}" width="22" height="${y1 - y0}">${title}</rect>`)
    }
    return
  }
  const x = layout.faults + f.lane * 12
  out.push(`<rect class="band fault" x="${x}" y="${y0}" width="9" height="${y1 - y0}">${title}</rect>`)
  out.push(`<path class="bandline" d="M${x} ${y0}h9M${x} ${y1}h9" stroke-width="2"/>`)
}

const lifeWidth = { follower: 2, precandidate: 4, candidate: 5, leader: 9 }
const lifeDash = { precandidate: '2 4', candidate: '6 3' }

function drawLife (out, life, cut) {
  if (life.state === 'down') return // the band says so
  const [y0, y1] = cut(life.from, life.to)
  const x = layout.server(life.server)
  out.push(`<line class="life ${life.state}" style="color:${termColor(life.term)}" x1="${x}" y1="${y0}" x2="${x}" y2="${y1}" stroke-width="${lifeWidth[life.state]}" stroke-dasharray="${lifeDash[life.state] ?? ''}"/>`)
}

function drawCall (out, c, cut, y) {
  const [y0, y1] = cut(c.row, c.end ?? model.rows.length)
  const x = layout.calls + c.lane * 11 + 5
  const outcome = c.answer ? c.answer.Outcome : 'open'
  const width = outcome === 'applied' ? 5 : 2
  out.push(`<g class="bar"><title>client ${c.Client}: ${safe(c.answer ? c.answer.Text : c.Text)}, ${outcome}</title>`)
  out.push(`<line class="call" x1="${x}" y1="${y0}" x2="${x}" y2="${y1}" stroke-width="${width}" ${outcome === 'unknown' || outcome === 'open' ? 'stroke-dasharray="4 3"' : ''}/>`)
  out.push(`<path class="call" d="M${x - 4} ${y(c.row)}h8" stroke-width="2"/>`)
  if (c.answer && outcome === 'applied') out.push(`<path class="call" d="M${x - 4} ${y(c.end)}h8" stroke-width="2"/>`)
  if (outcome === 'not applied') out.push(`<path class="cross" d="M${x - 4} ${y(c.end) - 4}l8 8m0-8l-8 8"/>`)
  if (outcome === 'unknown') out.push(`<text x="${x - 3.5}" y="${y(c.end) + 4}" class="fail">?</text>`)
  if (c.effect) out.push(`<path class="point" d="M${x} ${y(c.effect.row) - 6}l5 6l-5 6l-5-6z"/>`)
  out.push('</g>')
}

const messageStyle = type => /Reply$/.test(type) ? 'reply' : /Vote/.test(type) ? 'vote' : ''

function drawMessage (out, tags, x, y) {
  const x0 = layout.server(x.From); const x1 = layout.server(x.To)
  const toward = Math.sign(x1 - x0)
  const start = x0 + toward * 6; const end = x1 - toward * 6
  const y0 = y(x.row)
  const here = model.rows[cursor]
  const isPicked = x.row === cursor || here.Message === x.Message
  const style = messageStyle(x.Type) + (/\+\d/.test(x.Text) ? ' entries' : '')
  const title = `<title>n${x.From} to n${x.To}: ${safe(x.Text)}${x.Lost ? ' — lost: ' + safe(x.Lost) : ''}${x.Copies === 2 ? ' — doubled' : ''}${x.Late ? ' — late by ' + seconds(x.Late) : ''}</title>`
  const picked = isPicked ? ' picked' : ''
  const head = isPicked ? 'picked' : 'head'
  let tagY = y0 - 4; let tagX = (start + end) / 2
  if (x.Lost) {
    const xm = start + (end - start) * 0.55; const ym = y0 + rowHeight * 0.55
    out.push(`<g class="message lost">${title}<path class="arrow lost${picked}" d="M${start} ${y0}L${xm} ${ym}"/><path class="cross" d="M${xm - 4} ${ym - 4}l8 8m0-8l-8 8"/></g>`)
    tagX = xm
  }
  x.copies.forEach((copy, i) => {
    const yc = y(copy.step === undefined || copy.waits ? copy.row : copy.step)
    const ends = copy.down ? `<path class="cross" d="M${end - 4} ${yc - 4}l8 8m0-8l-8 8"/>` : ''
    out.push(`<g class="message${i ? ' again' : ''}">${title}<path class="arrow ${style}${picked}${copy.down ? ' lost' : ''}" d="M${start} ${y0}L${end} ${yc}" ${copy.down ? '' : `marker-end="url(#${head})"`}/>${ends}`)
    if (i) out.push(`<text class="faint" x="${end - toward * 22 - 6}" y="${yc - 3}">×2</text>`)
    if (copy.waits) out.push(`<path class="wait" d="M${end} ${yc}V${y(copy.step)}"/>`)
    out.push('</g>')
    if (here.Message === x.Message && copy.step === cursor) { tagY = y(cursor) - 4 }
  })
  if (isPicked) {
    const text = x.Text + (x.Lost ? ' (lost)' : '')
    tags.push({ x: tagX, y: tagY, text, from: x.From, to: x.To })
    const n = tags.length - 1
    tags[n] = `<text class="tag" text-anchor="middle" x="${tagX}" y="${x.row === cursor ? y0 + rowHeight * (n + 1) : tagY}">${x.row === cursor ? '→n' + x.To + ' ' : ''}${safe(text)}</text>`
  }
}

function drawRow (out, r, y) {
  const row = model.rows[r]
  const d = describe(row)
  const base = y + 4
  const previous = model.rows[r - 1]
  const sameTime = previous && previous.At === row.At
  out.push(`<text class="faint" x="8" y="${base}">${sameTime ? '' : seconds(row.At)}</text>`)
  if (row.Kind === 'step') {
    const x = layout.server(row.Server)
    const state = row.Down ? 'down' : row.State
    const turned = row.turn || row.Outside
    out.push(`<text style="fill:${termColor(row.Term)}" text-anchor="middle" x="${x}" y="${base + (turned ? 2 : 0)}" class="mark${turned ? ' turn' : ''}">${turned ? role[state] : '●'}</text>`)
    out.push(`<text class="state" x="${x + 14}" y="${base}" style="fill:${termColor(row.Term)}">${row.turn ? safe(state === 'down' ? 'down' : state + ' t' + row.Term) : `<tspan class="faint">${row.Last ?? 0}/${row.Commit ?? 0}</tspan>`}</text>`)
  }
  const strong = row.Kind === 'verdict' && row.Failure ? ' class="fail"' : row.Kind.startsWith('fault') ? ' class="bandtext"' : ''
  out.push(`<text${strong} x="${layout.text}" y="${base}">${safe(d.who)}${row.Kind === 'step' ? '' : ':'} <tspan class="${row.Kind === 'step' ? '' : 'words'}">${safe(d.what)}</tspan>${d.more ? ` <tspan font-weight="700">${safe(d.more)}</tspan>` : ''}</text>`)
}

function drawHead (out) {
  out.push(`<rect class="head" x="0" y="0" width="${layout.width}" height="${headHeight}"/><path class="rule" d="M0 ${headHeight}H${layout.width}"/>`)
  out.push('<text class="faint" x="8" y="16">time</text>')
  if (model.faultLanes) out.push(`<text class="faint" x="${layout.faults - 10}" y="32">faults</text>`)
  for (const id of model.run.Servers) {
    const x = layout.server(id) - 8
    const s = stateAt(id, cursor)
    const state = s ? (s.Down ? 'down' : s.State) : ''
    out.push(`<text x="${x}" y="16" font-weight="700">n${id}</text>`)
    if (s) out.push(`<text x="${x}" y="32" style="fill:${termColor(s.Term)}">${role[state]} ${layout.column < 130 ? '' : state + ' '}t${s.Term}</text>`)
  }
  if (model.callLanes) out.push(`<text class="faint" x="${layout.calls}" y="32">calls</text>`)
  out.push(`<text class="faint" x="${layout.text}" y="32">what happened, and what changed</text>`)
}

// ---------------------------------------------------------------- the cursor

function go (row) {
  if (!model.rows.length) return
  cursor = Math.max(0, Math.min(model.rows.length - 1, row))
  logEnd = 0
  const y = cursor * rowHeight
  const shown = layout.height - headHeight
  const margin = 3 * rowHeight
  if (y - margin < scrolled()) $('chart').scrollTop = Math.max(0, (y - margin) / scale)
  else if (y + rowHeight + margin > scrolled() + shown) $('chart').scrollTop = (y + rowHeight + margin - shown) / scale
  draw()
  show()
}

function show () {
  const row = model.rows[cursor]
  const d = describe(row)
  $('now').textContent = `${cursor + 1} of ${model.rows.length}, ${seconds(row.At)}, ${d.who}: ${d.what}`
  $('detail').innerHTML = detail(row).map(([name, text, bad]) => `<p class="${bad ? 'lost' : ''}"><b>${name}</b> ${safe(text)}</p>`).join('')
  showServers(row)
  showLogs()
  showOpen()
}

function detail (row) {
  const out = []
  const fate = x => {
    if (x.Lost) return 'lost: ' + x.Lost
    return x.copies.map(c => (c.down ? 'reached a server that was down at ' : 'arrived at ') + seconds(c.at) +
      (c.step === undefined ? (c.down ? '' : ', and was never taken') : c.waits ? ', taken at ' + seconds(model.rows[c.step].At) : '')).join(' and ') || 'still under way at the end'
  }
  if (row.Kind === 'step') {
    if (row.Message) {
      const x = model.messages.get(row.Message)
      if (x) out.push(['message', `${x.Text}, sent by n${x.From} at ${seconds(x.At)}; ${fate(x)}`, false])
    }
    if (row.Changes) out.push(['changed', row.Changes, false])
    if (row.Todo) out.push(['to do', row.Todo, false])
    for (const x of near(cursor)) {
      if (x.shape === 'message' && x.row === cursor) out.push([`to n${x.To}`, x.Text + '; ' + fate(x), x.Lost])
    }
  }
  const call = row.Kind === 'call' ? row : model.calls.get(row.Call)
  if (call) {
    out.push(['call', `${call.Text}, by client ${call.Client} at ${seconds(call.At)}`, false])
    if (call.attempts) out.push(['asked', call.attempts.map(a => `n${a.server} at ${seconds(a.at)}`).slice(-12).join(', '), false])
    if (call.effect) out.push(['took effect', `at ${seconds(call.effect.At)}, index ${call.effect.Index}, first on n${call.effect.Server}`, false])
    out.push(call.answer ? ['answered', `${call.answer.Outcome} at ${seconds(call.answer.At)}: ${call.answer.Text}`, false] : ['answered', 'never', true])
  }
  if (row.Kind === 'verdict') {
    if (row.Failure) out.push(['failed', row.Text, true])
    out.push(['hash', `${row.Hash}, ${row.Steps} steps, ${row.Operations} calls`, false])
    if (model.run.Repeat) out.push(['repeat', model.run.Repeat, false])
  }
  return out
}

const near = row => model.buckets[Math.floor(row / bucketRows)] ?? []

function showServers (row) {
  const head = '<thead><tr><th></th><th>role</th><th>term</th><th>vote</th><th>leader</th><th>log</th><th>disk</th><th>commit</th><th>applied</th></tr></thead>'
  $('servers').innerHTML = head + '<tbody>' + model.run.Servers.map(id => {
    const s = stateAt(id, cursor)
    const acting = row.Kind === 'step' && row.Server === id ? ' class="acting"' : ''
    if (!s) return `<tr${acting}><th>n${id}</th><td colspan="8">not started</td></tr>`
    const state = s.Down ? 'down' : s.State
    const server = x => x ? 'n' + x : '–'
    return `<tr${acting}><th scope="row">n${id}</th><td>${role[state]} ${state}</td><td style="color:${termColor(s.Term)}">t${s.Term}</td><td>${server(s.VotedFor)}</td><td>${server(s.Leader)}</td><td>${s.Last ?? 0}</td><td>${s.Saved ?? 0}</td><td>${s.Commit ?? 0}</td><td>${s.Applied ?? 0}</td></tr>`
  }).join('') + '</tbody>'
}

const logColumns = 10

function showLogs () {
  const servers = model.run.Servers
  const logs = new Map(servers.map(id => [id, logAt(id, cursor)]))
  const longest = Math.max(1, ...[...logs.values()].map(l => l.length))
  const end = Math.min(longest, Math.max(logColumns, logEnd || longest))
  const begin = Math.max(1, end - logColumns + 1)
  let head = '<thead><tr><th>index</th>'
  for (let i = begin; i <= end; i++) head += `<th scope="col">${i}</th>`
  $('logs').innerHTML = head + '</tr></thead><tbody>' + servers.map(id => {
    const s = stateAt(id, cursor)
    let cells = ''
    for (let i = begin; i <= end; i++) cells += `<td>${cell(logs, id, s, i)}</td>`
    return `<tr><th scope="row">n${id}</th>${cells}</tr>`
  }).join('') + '</tbody>'
  $('logs').parentNode.scrollLeft = 1e6 // the newest entries are the ones that matter
}

function cell (logs, id, s, i) {
  const e = logs.get(id)[i - 1]
  if (!e) return ''
  const others = [...logs.values()].map(l => l[i - 1]).filter(o => o && (o.Term !== e.Term || o.Text !== e.Text))
  const committed = s && i <= (s.Commit ?? 0); const unsaved = s && i > (s.Saved ?? 0)
  const words = [`index ${i}, term ${e.Term}: ${e.Text || 'the empty entry of a new leader'}`]
  if (committed) words.push('committed')
  if (unsaved) words.push('not on its disk')
  if (others.length) words.push('another server has something else here')
  return `<span class="entry${committed ? ' committed' : ''}${unsaved ? ' unsaved' : ''}${others.length ? ' differs' : ''}" style="color:${termColor(e.Term)}" title="${safe(words.join('; '))}">${others.length ? '≠' : ''}${e.Term} ${safe(e.Text || '–')}</span>`
}

function showOpen () {
  const open = [...near(cursor)].filter(x => (x.shape === 'fault' || x.shape === 'call') && x.row <= cursor && (x.end ?? Infinity) > cursor)
  open.sort((a, b) => a.shape === b.shape ? a.row - b.row : a.shape < b.shape ? 1 : -1)
  $('open').innerHTML = open.map(x => `<li>${safe(x.shape === 'fault' ? describe(x).what : `client ${x.Client} waits: ${x.Text}`)}</li>`).join('') || '<li>nothing</li>'
}

function showLegend () {
  $('legend').innerHTML = '<table><tbody>' + [
    ['○ thin line', 'follower'], ['◌ dotted', 'pre-candidate'], ['◇ dashed', 'candidate'], ['★ broad bar', 'leader'], ['hatched', 'the server is down'],
    ['t3, its color', 'term 3'], ['6/4', 'the log ends at 6, 4 is committed'],
    ['full arrow', 'AppendEntries; darker with entries'], ['dashed arrow', 'a request for a vote'], ['dotted arrow', 'an answer'],
    ['ends in ✕', 'lost'], ['×2', 'the second copy of a message'], ['dots below a head', 'it waits until the server takes it'],
    ['broad bar, ◆', 'a call, and where it took effect'], ['thin bar, ✕', 'a call that was not carried out'], ['dashed bar, ?', 'its caller does not know']
  ].map(([a, b]) => `<tr><td>${a}</td><td>${b}</td></tr>`).join('') + '</tbody></table>'
}

// ---------------------------------------------------------------- keys

// seek goes to the next row, or with -1 the one before, for which is says yes.
function seek (step, is) {
  for (let r = cursor + step; r >= 0 && r < model.rows.length; r += step) {
    if (is(model.rows[r])) { go(r); return true }
  }
  return false
}

const sameActor = (a, b) => a.Kind === 'step' ? b.Kind === 'step' && b.Server === a.Server : a.Client ? b.Client === a.Client : b.Kind.startsWith('fault')

// follow goes from the step that takes a message to where it was sent, and from
// the step that sent one to where it was taken.
function follow () {
  const row = model.rows[cursor]
  const taken = model.messages.get(row.Message)
  if (taken && taken.row !== cursor) { go(taken.row); return }
  for (const x of near(cursor)) {
    const copy = x.shape === 'message' && x.row === cursor && x.copies.find(c => c.step !== undefined)
    if (copy) { go(copy.step); return }
  }
}

const pageRows = () => Math.max(1, Math.floor((layout.height - headHeight) / rowHeight) - 4)

const keys = {
  ArrowDown: () => go(cursor + 1), j: () => go(cursor + 1),
  ArrowUp: () => go(cursor - 1), k: () => go(cursor - 1),
  PageDown: () => go(cursor + pageRows()), PageUp: () => go(cursor - pageRows()),
  Home: () => go(0), End: () => go(model.rows.length - 1),
  n: () => { const here = model.rows[cursor]; seek(1, r => sameActor(here, r)) },
  p: () => { const here = model.rows[cursor]; seek(-1, r => sameActor(here, r)) },
  f: () => seek(1, r => r.Kind === 'fault'), F: () => seek(-1, r => r.Kind === 'fault'),
  l: () => seek(1, r => r.turn), L: () => seek(-1, r => r.turn),
  m: follow,
  '/': () => { $('find').focus(); $('find').select() },
  '?': toggleHelp,
  '[': () => shiftLogs(-1), ']': () => shiftLogs(1)
}

function shiftLogs (by) {
  const longest = Math.max(1, ...model.run.Servers.map(id => logAt(id, cursor).length))
  logEnd = Math.max(logColumns, Math.min(longest, (logEnd || longest) + by * (logColumns - 2)))
  showLogs()
}

function toggleHelp () {
  const hidden = $('help').hidden = !$('help').hidden
  $('help-button').setAttribute('aria-expanded', String(!hidden))
  resize()
}

function press (event) {
  if (event.ctrlKey || event.altKey || event.metaKey || !model.rows.length) return
  if (event.target.closest?.('input, button, summary') && event.key !== 'Escape') return
  const digit = /^[1-9]$/.test(event.key) && model.run.Servers[event.key - 1]
  if (digit) seek(1, r => r.Kind === 'step' && r.Server === digit)
  else if (keys[event.key]) keys[event.key]()
  else return
  event.preventDefault()
}

// search returns the next row from the cursor on that contains the text.
function search (step) {
  const wanted = $('find').value.trim().toLowerCase()
  if (!wanted) return
  const has = row => { const d = describe(row); return `${d.who}: ${d.what} ${d.more} ${row.Todo ?? ''}`.toLowerCase().includes(wanted) }
  const here = cursor
  let found = seek(step, has)
  if (!found) { // once around
    cursor = step > 0 ? -1 : model.rows.length
    found = seek(step, has)
  }
  if (!found) cursor = here
  $('found').textContent = found ? `line ${cursor + 1}` : 'nothing'
}

// ---------------------------------------------------------------- beginning

function load (text) {
  const started = performance.now()
  model = build(text.split('\n').filter(Boolean).map(line => JSON.parse(line)))
  cursor = 0
  document.title = (model.run.Title || 'trace') + ' – raftkv replay'
  $('title').textContent = model.run.Title || 'raftkv replay'
  $('plan').textContent = model.run.Plan || ''
  const v = model.verdict
  $('verdict').textContent = !v ? 'The trace has no end.' : v.Failure ? '✕ ' + v.short : '✓ nothing was broken'
  $('verdict').className = v && v.Failure ? 'failed' : ''
  resize()
  if (!model.rows.length) { $('now').textContent = 'The trace is empty.'; return }
  go(v && v.Failure ? model.rows.length - 1 : 0)
  model.loadMillis = Math.round(performance.now() - started)
}

// unpack undoes base64 and gzip.
async function unpack (base64) {
  const bytes = Uint8Array.from(atob(base64), c => c.charCodeAt(0))
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Response(stream).text()
}

async function main () {
  showLegend()
  $('chart').addEventListener('scroll', () => requestAnimationFrame(draw))
  $('chart').addEventListener('click', event => {
    const y = event.clientY - $('chart').getBoundingClientRect().top - headHeight
    if (y >= 0) go(Math.floor((y + scrolled()) / rowHeight))
  })
  addEventListener('resize', resize)
  addEventListener('keydown', press)
  $('help-button').addEventListener('click', toggleHelp)
  $('search').addEventListener('submit', event => event.preventDefault())
  $('find').addEventListener('keydown', event => {
    if (event.key === 'Enter') { event.preventDefault(); search(event.shiftKey ? -1 : 1) }
    if (event.key === 'Escape') $('chart').focus()
  })
  $('file').addEventListener('change', async event => { load(await event.target.files[0].text()); $('chart').focus() })
  const packed = $('trace').textContent.trim()
  $('trace').textContent = ''
  const started = performance.now()
  if (packed) load(await unpack(packed)); else { resize(); $('now').textContent = 'Open a trace file.' }
  model.readyMillis = Math.round(performance.now() - started)
  $('chart').focus()
}

main()
