/** Small changes of a source file, each of which a test should notice. */
import ts from 'typescript'

export interface Mutant {
  /** Offsets in the source. */
  start: number
  end: number
  replacement: string
  /** 1 for the first. */
  line: number
  /** What stood there and what stands there now, on one line. */
  change: string
}

const { SyntaxKind: Kind } = ts

/** For each operator the one that is most easily confused with it. */
const otherOperator = new Map([
  [Kind.LessThanToken, '<='],
  [Kind.LessThanEqualsToken, '<'],
  [Kind.GreaterThanToken, '>='],
  [Kind.GreaterThanEqualsToken, '>'],
  [Kind.EqualsEqualsEqualsToken, '!=='],
  [Kind.ExclamationEqualsEqualsToken, '==='],
  [Kind.AmpersandAmpersandToken, '||'],
  [Kind.BarBarToken, '&&'],
  [Kind.QuestionQuestionToken, '&&'],
  [Kind.PlusToken, '-'],
  [Kind.MinusToken, '+'],
  [Kind.AsteriskToken, '/'],
  [Kind.SlashToken, '*'],
  [Kind.PercentToken, '*'],
  [Kind.PlusEqualsToken, '-='],
  [Kind.MinusEqualsToken, '+='],
])
const otherCall = new Map([
  ['Math.min', 'Math.max'],
  ['Math.max', 'Math.min'],
  ['Math.floor', 'Math.ceil'],
  ['Math.ceil', 'Math.floor'],
])

/** In the order in which they stand in the source. */
export function mutantsOf(fileName: string, source: string): Mutant[] {
  const file = ts.createSourceFile(fileName, source, ts.ScriptTarget.Latest, true)
  const mutants: Mutant[] = []
  const replace = (node: ts.Node, replacement: string) => {
    const [start, end] = [node.getStart(file), node.getEnd()]
    const change = `${source.slice(start, end)} → ${replacement || 'nothing'}`.replace(/\s+/g, ' ')
    const line = file.getLineAndCharacterOfPosition(start).line + 1
    mutants.push({ start, end, replacement, line, change })
  }
  const visit = (node: ts.Node): void => {
    // Types have no behaviour.
    if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) || ts.isImportDeclaration(node)) return
    mutate(node, replace)
    ts.forEachChild(node, visit)
  }
  visit(file)
  return mutants
}

function mutate(node: ts.Node, replace: (node: ts.Node, replacement: string) => void): void {
  if (ts.isBinaryExpression(node)) {
    const other = otherOperator.get(node.operatorToken.kind)
    if (other !== undefined) replace(node.operatorToken, other)
  }
  if (ts.isIfStatement(node) || ts.isConditionalExpression(node)) {
    const condition = ts.isIfStatement(node) ? node.expression : node.condition
    replace(condition, 'true')
    replace(condition, 'false')
  }
  if (ts.isPrefixUnaryExpression(node) && node.operator === Kind.ExclamationToken)
    replace(node, `(${node.operand.getText()})`)
  if (ts.isPostfixUnaryExpression(node))
    replace(node, node.operand.getText() + (node.operator === Kind.PlusPlusToken ? '--' : '++'))
  if (node.kind === Kind.TrueKeyword) replace(node, 'false')
  if (node.kind === Kind.FalseKeyword) replace(node, 'true')
  if (ts.isNumericLiteral(node)) {
    const isName = ts.isPropertyAssignment(node.parent) && node.parent.name === node
    replace(node, isName ? `[${node.getText()} + 1]` : `(${node.getText()} + 1)`)
  }
  if (ts.isCallExpression(node)) {
    const other = otherCall.get(node.expression.getText())
    if (other !== undefined) replace(node.expression, other)
  }
  if (ts.isExpressionStatement(node)) replace(node, ';')
}
