"""The async twins of the primitives, in files of the same names. Apart from them, since they import asyncio."""
