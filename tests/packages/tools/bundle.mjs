// Bundles a program with one bundler: node bundle.mjs TOOL INPUT OUTPUT FORMAT [external]
// FORMAT is cjs or esm. With `external`, it uses the setting that the error message of quorlock names.
// The tool `nft` prints the files of the program.

import { mkdirSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'

const [tool, input, output, format, external] = process.argv.slice(2)
const names = external ? ['quorlock'] : []
const isModule = format === 'esm'

const tools = {
  async esbuild() {
    const { build } = await import('esbuild')
    await build({ entryPoints: [input], outfile: output, bundle: true, platform: 'node', format, external: names })
  },

  async rollup() {
    const { rollup } = await import('rollup')
    const [{ default: nodeResolve }, { default: commonjs }, { default: json }] = await Promise.all([
      import('@rollup/plugin-node-resolve'),
      import('@rollup/plugin-commonjs'),
      import('@rollup/plugin-json'),
    ])
    const plugins = [nodeResolve({ preferBuiltins: true }), commonjs(), json()]
    const bundle = await rollup({ input, plugins, external: names })
    await bundle.write({ file: output, format })
  },

  async webpack() {
    const { default: webpack } = await import('webpack')
    const stats = await new Promise((found, failed) => {
      const options = {
        mode: 'production',
        target: 'node',
        entry: resolve(input),
        externals: external ? { quorlock: 'node-commonjs quorlock' } : {},
        experiments: { outputModule: isModule },
        output: { path: resolve(dirname(output)), filename: basename(output), module: isModule },
      }
      webpack(options, (error, stats) => (error ? failed(error) : found(stats)))
    })
    const text = stats.toString({ all: false, errors: true, warnings: true })
    if (text.trim()) throw new Error(text)
  },

  async vite() {
    const { build } = await import('vite')
    await build({
      configFile: false,
      logLevel: 'warn',
      build: {
        ssr: resolve(input),
        outDir: dirname(output),
        emptyOutDir: false,
        rollupOptions: { output: { format, entryFileNames: basename(output) } },
      },
      ssr: { noExternal: true, external: names },
    })
  },

  async ncc() {
    const { default: ncc } = await import('@vercel/ncc')
    const { code, assets } = await ncc(resolve(input), { quiet: true, cache: false })
    mkdirSync(dirname(output), { recursive: true })
    writeFileSync(output, code)
    for (const [name, { source }] of Object.entries(assets)) writeFileSync(join(dirname(output), name), source)
  },

  async nft() {
    const { nodeFileTrace } = await import('@vercel/nft')
    const { fileList } = await nodeFileTrace([input])
    console.log([...fileList].join('\n'))
  },
}

await tools[tool]()
