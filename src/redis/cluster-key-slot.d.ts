/** The package carries no types of its own. */
declare module 'cluster-key-slot' {
  export default function slotOf(key: string): number
}
